-- Begin a partition, or check that it is one of ours.
--
-- KEYS     meta  HASH  format, partitions, created
-- ARGV[2]  msgpack: format, partitions
-- Returns  {format, partitions} as the partition has them

-- include: head

local wish = cmsgpack.unpack(ARGV[2])
local meta = at('meta')
if call('EXISTS', meta) == 0 then
    call('HSET', meta, 'format', wish.format, 'partitions', wish.partitions, 'created', now_text)
end
return call('HMGET', meta, 'format', 'partitions')
