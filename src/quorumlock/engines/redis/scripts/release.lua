-- KEYS lock
-- ARGV token
-- answers {1} deleted · {0, 0, 0} another's · {-3} absent

-- MGET, not GET: a key of another type is simply not ours.
local holder = redis.call('MGET', KEYS[1])[1]
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return {1}
end
if holder then return {0, 0, 0} end
return {-3}
