-- Take in what another partition has left in its outbox, once and in its order.
--
-- KEYS     relayed, and what the entry touches
-- ARGV[2]  msgpack: source (a partition), number
-- ARGV[3]  the entry, msgpack, as it lay in the outbox: to, kind (send, start, unbind), and what it is
-- Returns  {"want", keys}, {"again"} if it was taken in before, or {"done", what became of it}
--
-- relayed  HASH  source → the number of the last entry taken in. Numbers of a source only grow, and
--          whoever carries them stops at the first that fails; so a smaller one has been here before.

-- include: head
-- include: runs
-- include: inbox
-- include: tasks
-- include: ending

local wish = cmsgpack.unpack(ARGV[2])
local entry = cmsgpack.unpack(ARGV[3])
local relayed = need('relayed')
if relayed then
    local last = call('HGET', relayed, wish.source)
    if last and tonumber(last) >= tonumber(wish.number) then
        return { 'again' }
    end
end
if entry.kind == 'send' then
    need_delivery(entry.send)
elseif entry.kind == 'start' then
    if find(entry.start.fresh.id) == false then
        need_birth(entry.start.fresh)
        need_end(entry.start.fresh.id)
    end
elseif entry.kind == 'unbind' then
    need(entry.name)
end
if #missing > 0 then
    return { 'want', missing }
end
local answer = { 'ok' }
if entry.kind == 'send' then
    answer = deliver(entry.send)
elseif entry.kind == 'start' then
    if not find(entry.start.fresh.id) then
        local child = begin(entry.start.fresh)
        append(child, entry.start.events)
        if is_ended(child) then
            end_run(child)
        end
    end
elseif call('HGET', at(entry.name), 'run') == entry.run then
    call('DEL', at(entry.name))
end
flush()
call('HSET', relayed, wish.source, wish.number)
return { 'done', answer }
