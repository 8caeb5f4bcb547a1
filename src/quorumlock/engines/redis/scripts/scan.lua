-- KEYS none
-- ARGV cursor, match (of fence keys), count, head (what stands before the name in these), lock (before that of locks)
-- answers {cursor, name, …}: of locks that are held now

local cursor, match, count, head, prefix = unpack(ARGV)
local step = redis.call('SCAN', cursor, 'MATCH', match, 'COUNT', count)
local found = {step[1]}
for _, key in ipairs(step[2]) do
  local name = string.sub(key, #head + 1, -2)
  if redis.call('EXISTS', prefix .. name) == 1 then found[#found + 1] = name end
end
return found
