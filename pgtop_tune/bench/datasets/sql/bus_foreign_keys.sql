ALTER TABLE bus.stations ADD FOREIGN KEY (city_id) REFERENCES bus.cities;
ALTER TABLE bus.seats ADD FOREIGN KEY (bus_id) REFERENCES bus.buses;
ALTER TABLE bus.routes ADD FOREIGN KEY (from_station_id) REFERENCES bus.stations;
ALTER TABLE bus.routes ADD FOREIGN KEY (to_station_id) REFERENCES bus.stations;
ALTER TABLE bus.schedule ADD FOREIGN KEY (route_id) REFERENCES bus.routes;
ALTER TABLE bus.schedule ADD FOREIGN KEY (bus_id) REFERENCES bus.buses;
ALTER TABLE bus.rides ADD FOREIGN KEY (schedule_id) REFERENCES bus.schedule;
ALTER TABLE bus.tickets ADD FOREIGN KEY (ride_id) REFERENCES bus.rides;
