-- Gold: the hottest and the latest of each machine.
CREATE MATERIALIZED VIEW hottest AS
SELECT line, machine, count(*) AS readings, max(celsius) AS hottest, max_by(celsius, received_at) AS latest
FROM temperatures
GROUP BY line, machine
