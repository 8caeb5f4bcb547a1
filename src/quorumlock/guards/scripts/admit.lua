-- KEYS mark, then what the script behind this one works on
-- ARGV fence, ttl_ms of the mark or 0, then what the script behind this one takes
-- answers error STALEFENCE seen · error BADMARK · or what the script behind this one answers

do
  local seen = redis.pcall('GET', KEYS[1]) or '0'
  if type(seen) == 'table' and not string.find(seen.err, 'WRONGTYPE', 1, true) then return seen end
  if type(seen) == 'table' or not string.find(seen, '^%d+$') or #seen > 16 then
    return redis.error_reply('BADMARK the mark is no fence')
  end
  local fence, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
  if fence < tonumber(seen) then return redis.error_reply('STALEFENCE ' .. seen) end
  -- Before the write, as an error ends a script without undoing it: a mark without its write harms nobody.
  if ttl > 0 then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  elseif fence > tonumber(seen) then
    redis.call('SET', KEYS[1], ARGV[1])
  end
  table.remove(KEYS, 1)
  table.remove(ARGV, 1)
  table.remove(ARGV, 1)
end
