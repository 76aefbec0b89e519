VACUUM (ANALYZE) bus.cities, bus.stations, bus.buses, bus.seats, bus.routes, bus.schedule, bus.rides, bus.tickets;
