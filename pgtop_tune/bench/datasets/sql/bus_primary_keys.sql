ALTER TABLE bus.cities ADD PRIMARY KEY (city_id);
ALTER TABLE bus.stations ADD PRIMARY KEY (station_id);
ALTER TABLE bus.buses ADD PRIMARY KEY (bus_id);
ALTER TABLE bus.seats ADD PRIMARY KEY (bus_id, seat);
ALTER TABLE bus.routes ADD PRIMARY KEY (route_id);
ALTER TABLE bus.schedule ADD PRIMARY KEY (schedule_id);
ALTER TABLE bus.rides ADD PRIMARY KEY (ride_id);
ALTER TABLE bus.tickets ADD PRIMARY KEY (ticket_id);
