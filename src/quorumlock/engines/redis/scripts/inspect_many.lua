-- KEYS lock, fence, marker; then lock, fence of every further lock; then queue, readers of every lock
-- ARGV marker
-- answers {2, {…}}, for each lock what inspect.lua answers · {-1} stranger
--
-- Of the first of them only, where there are too many who wait or share to tell of all at once.

if refusal and refusal[1] == STRANGER then return refusal end
local count = (#KEYS - 1) / 4
local held = count > 1 and redis.call('MGET', unpack(KEYS, 4, 2 * count + 1)) or {}
table.insert(held, 1, seen[2])
table.insert(held, 1, seen[1])
local answers, told = {}, 0
for i = 1, count do
  local lock, at = KEYS[i == 1 and 1 or 2 * i], 2 * count + 2 * i
  local holder, readers, waiters = held[2 * i - 1], {}, {}
  if not holder and redis.call('EXISTS', lock) == 1 then
    answers[i] = {OTHER_KIND}
  else
    if holder == READERS then
      readers = redis.call('ZRANGE', KEYS[at + 1], 0, 999, 'WITHSCORES')
      for j = 2, #readers, 2 do readers[j] = math.floor(readers[j] - now / 1000) end
    end
    waiters = redis.call('ZRANGEBYSCORE', KEYS[at], 0, '+inf', 'LIMIT', 0, 1000)
    answers[i] = {1, holder or '', redis.call('PTTL', lock), held[2 * i] or '', readers, waiters}
  end
  told = told + #readers / 2 + #waiters
  if told > 2000 then break end
end
return {2, answers}
