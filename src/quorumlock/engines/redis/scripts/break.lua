-- KEYS lock, fence, marker, broken, readers, queue
-- ARGV fence_ttl_ms, broken_ttl_ms, fence (the highest known), only (a fence, or 0), channel, (by, journal,) marker
-- answers {1, fence} deleted · {-3} absent · {-5, fence} granted above `only` · {-1} stranger · {-4} another kind
--
-- Every lease whose fence lies below that in `broken` was forced open: it is not to be healed here, by a healing that
-- was on its way meanwhile.

if refusal and refusal[1] == STRANGER then return refusal end
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
local only = tonumber(ARGV[4])
if only > 0 and stored > only then
  if seen[1] then return {CHANGED, stored} end
  return {ABSENT}
end
redis.call('DEL', KEYS[1], KEYS[5])
local fence = math.max(stored, tonumber(ARGV[3])) + 1
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], text, 'PX', ARGV[1])
redis.call('SET', KEYS[4], text, 'PX', ARGV[2])
--+ local was = seen[1] and (seen[1] == READERS and '' or short(seen[1]))
--+ if was then redis.pcall('DEL', (last_of(lock))) end
--+ if was then note('broken', lock, string.format('%.0f', stored), short(ARGV[6]), was) end
tell(KEYS[6], ARGV[5], '')
if seen[1] then return {1, fence} end
return {ABSENT}
