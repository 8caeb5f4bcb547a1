-- KEYS key
-- ARGV value, then EX or PX and a number
-- answers OK
return redis.call('SET', KEYS[1], unpack(ARGV))
