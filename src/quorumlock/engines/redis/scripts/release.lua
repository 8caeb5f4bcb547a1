-- KEYS lock
-- ARGV token
-- answers 1 deleted · 0 another's · -3 absent

local holder = redis.pcall('GET', KEYS[1]) -- an error, and so another's, where the key is of another type
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
return holder and 0 or -3
