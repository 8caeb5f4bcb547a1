-- Between standing.lua and turn.lua, for a semaphore: the first of its slots that is free.
-- KEYS[5..] lock, fence of every further slot; those of the first are KEYS[1] and KEYS[2]
-- answers of acquire.lua have a third element: which slot, counted from 0

if refusal then return refusal end
slot = 0
if seen[1] and seen[1] ~= ARGV[1] then
  local free
  left_ms = redis.call('PTTL', lock)
  local others = #KEYS > 4 and redis.call('MGET', unpack(KEYS, 5)) or {}
  for i = 1, #others, 2 do
    if others[i] == ARGV[1] or not others[i] and not free then
      free = i
      if others[i] then break end -- it is ours already
    elseif others[i] then
      left_ms = math.min(left_ms, redis.call('PTTL', KEYS[4 + i]))
    end
  end
  if free then
    lock, fence_key, slot = KEYS[4 + free], KEYS[5 + free], (free + 1) / 2
    seen[1], seen[2] = others[free], others[free + 1]
    stored = tonumber(string.match(seen[2] or '', '^%d+')) or 0
  end
end
