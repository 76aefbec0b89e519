DROP TABLE IF EXISTS bus.tickets, bus.rides, bus.schedule, bus.routes, bus.seats, bus.buses, bus.stations, bus.cities,
    bus.chunks, bus.dataset;
