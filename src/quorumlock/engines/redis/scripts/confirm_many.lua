-- KEYS lock, fence, marker; then lock, fence of every further lock
-- ARGV token, fence_ttl_ms; granted, fence of every lock; marker
-- answers {1, 1} raised · {-5} granted again since · {-1} stranger · {-2, ms} quarantine

if refusal then return refusal end
local mine = string.sub(ARGV[1], 1, 2) == 'r:' and READERS or ARGV[1] -- who shares a lock (see read.lua)
local count = (#ARGV - 3) / 2
local held = count > 1 and redis.call('MGET', unpack(KEYS, 4)) or {}
table.insert(held, 1, seen[2])
table.insert(held, 1, seen[1])
for i = 1, count do
  local fence = tonumber(string.match(held[2 * i] or '', '^%d+'))
  if held[2 * i - 1] ~= mine or fence ~= tonumber(ARGV[2 * i + 1]) then return {CHANGED} end
end
for i = 1, count do
  local fence_key = KEYS[i == 1 and 2 or 2 * i + 1]
  redis.call('SET', fence_key, ARGV[2 * i + 2] .. string.match(held[2 * i], '^%d+(.*)$'), 'PX', ARGV[2])
end
return {1, 1}
