-- Begin a partition, or check that it is one of ours.
--
-- KEYS     meta  HASH  format, partitions, created, identity
-- ARGV[2]  msgpack: format, partitions, identity (for a partition that begins now)
-- Returns  {format, partitions, identity} as the partition has them

-- include: head

local wish = cmsgpack.unpack(ARGV[2])
local meta = at('meta')
if call('EXISTS', meta) == 0 then
    call(
        'HSET', meta, 'format', wish.format, 'partitions', wish.partitions, 'created', now_text,
        'identity', wish.identity
    )
end
return call('HMGET', meta, 'format', 'partitions', 'identity')
