CREATE INDEX tickets_ride_id ON bus.tickets (ride_id);
CREATE INDEX rides_ride_date ON bus.rides (ride_date);
