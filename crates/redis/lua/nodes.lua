-- Says that a process is here, and tells how many are. It is a script so that all go by the server's clock.
--
-- KEYS[1]: a sorted set: who was seen, by when that was last, in milliseconds
-- ARGV[1]: who says so
-- ARGV[2]: for how many milliseconds it is remembered
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function written(moment)
    return string.format('%.0f', moment)
end
-- Who was seen later than now was seen by another clock: it will say so again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. written(now), '+inf')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', written(now - ARGV[2]))
redis.call('ZADD', KEYS[1], written(now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
