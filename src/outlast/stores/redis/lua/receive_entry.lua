-- Receive an entry of another partition's outbox: exactly once, in order.
--
-- KEYS     relayed, and what the entry touches
-- ARGV[2]  msgpack: source (a partition), number
-- ARGV[3]  the entry, msgpack, as in the outbox: to, kind (send, start, unbind), and its content
-- Returns  {"want", keys}, {"again"} if it was received before, or {"done", its outcome}
--
-- relayed  HASH  source → the number of the last received entry. Numbers of a source only grow, and a carrier
--          stops at the first that fails; so a smaller number was received before.

-- include: prelude
-- include: runs
-- include: inbox
-- include: tasks
-- include: run_end

local args = cmsgpack.unpack(ARGV[2])
local entry = cmsgpack.unpack(ARGV[3])
local relayed = need('relayed')
if relayed then
    local last = call('HGET', relayed, args.source)
    if last and tonumber(last) >= tonumber(args.number) then
        return { 'again' }
    end
end
if entry.kind == 'send' then
    need_delivery(entry.send)
elseif entry.kind == 'start' then
    if find(entry.start.new_run.id) == false then
        need_creation(entry.start.new_run)
        need_end(entry.start.new_run.id)
    end
elseif entry.kind == 'unbind' then
    need(entry.name)
end
if #missing > 0 then
    return { 'want', missing }
end
local answer = { 'ok' }
if entry.kind == 'send' then
    answer = deliver_item(entry.send)
elseif entry.kind == 'start' then
    if not find(entry.start.new_run.id) then
        local child = create_run(entry.start.new_run)
        append(child, entry.start.events)
        if is_ended(child) then
            end_run(child)
        end
    end
elseif call('HGET', at(entry.name), 'run') == entry.run then
    call('DEL', at(entry.name))
end
flush()
call('HSET', relayed, args.source, args.number)
return { 'done', answer }
