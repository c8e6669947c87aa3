-- Remove a portion of what is below the root of a tree that is being deleted, see lib/marks.lua.
--
-- ARGV[2]  msgpack: id (of the root)
-- Returns  {"want", keys}, {"more"} or {"done"}

-- include: head
-- include: runs
-- include: tasks
-- include: ending

local STALE = 60000000  -- microseconds after which a caller that checks a tree is taken for dead
local wish = cmsgpack.unpack(ARGV[2])
local mark = deleting and deleting[wish.id]
if mark and mark.kind == 'check' and now - tonumber(mark.at) > STALE then
    deleting[wish.id] = nil
    save_marks()
end
if not mark or mark.kind == 'check' then
    return { 'done' }
end
is_removing = true
for _, name in ipairs({ 'ids', 'keyed', 'created', 'updated', 'snapshots' }) do
    need('idx:' .. name)
end
if #missing > 0 then
    return { 'want', missing }
end

local function size_of(id)
    local size = 1
    for _, what in ipairs({ 'tasks', 'timers', 'activities', 'keys' }) do
        local key = named[of_run(id, what)]
        size = size + (key and call('SCARD', key) or 0)
    end
    return size
end

local portion = { ids = {}, keyed = {} }
local ids, size, last = below(at('idx:ids'), wish.id, mark.after), 0, nil
for n, id in ipairs(ids) do
    if n > PORTION or size > PORTION * 2 then
        break
    end
    last = id
    local run = find(id)
    if run and (mark.kind == 'all' or is_over(run)) then
        need_removal(id)
        need_keys_of(id)
        size = size + size_of(id)
        portion.ids[#portion.ids + 1], portion.keyed[#portion.keyed + 1] = id, id
    elseif run == false and #missing == 0 then
        call('ZREM', at('idx:ids'), id)
    end
end
local is_done = #ids == 0
-- A life was replaced and none of its descendants goes on: none needs the facts of its tree.
local facts = mark.kind == 'ended' and need(of_run(wish.id, 'facts'))
local is_left = #below(at('idx:ids'), wish.id) > 0
if is_done and mark.kind == 'all' then
    -- Keys whose runs never began, or are gone.
    for n, id in ipairs(below(at('idx:keyed'), wish.id)) do
        is_done = n <= PORTION
        if is_done then
            need_keys_of(id)
            portion.keyed[n] = id
        end
    end
end
if #missing > 0 then
    return { 'want', missing }
end
forget_tree(wish.id, portion)
mark.after = last or mark.after
if is_done then
    deleting[wish.id] = nil
    if facts and not is_left then
        call('UNLINK', facts)
    end
end
save_marks()
return { is_done and 'done' or 'more' }
