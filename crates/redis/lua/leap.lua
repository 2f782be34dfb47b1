-- A state that lies further ahead than this, in microseconds, was written under a clock that has since been put back (a failover
-- to a machine with another idea of time). It counts as written now; otherwise it would refuse until the clock is there again.
local leap = 60000000
