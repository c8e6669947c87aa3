-- Delete a portion of the descendants of a tree that is being deleted, see lib/deletions.lua.
--
-- ARGV[2]  msgpack: id (of the root)
-- Returns  {"want", keys}, {"more"} or {"done"}

-- include: prelude
-- include: runs
-- include: tasks
-- include: run_end

local STALE = 60000000  -- microseconds after which a caller that checks a tree counts as crashed
local args = cmsgpack.unpack(ARGV[2])
local deletion = deleting and deleting[args.id]
if deletion and deletion.kind == 'check' and now - tonumber(deletion.at) > STALE then
    deleting[args.id] = nil
    save_deletions()
end
if not deletion or deletion.kind == 'check' then
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
        local key = keys_by_name[of_run(id, what)]
        size = size + (key and call('SCARD', key) or 0)
    end
    return size
end

local portion = { ids = {}, keyed = {} }
local ids, size, last = descendants_in(at('idx:ids'), args.id, deletion.after), 0, nil
for n, id in ipairs(ids) do
    if n > PORTION or size > PORTION * 2 then
        break
    end
    last = id
    local run = find(id)
    if run and (deletion.kind == 'all' or is_finished(run)) then
        need_removal(id)
        need_keys_of(id)
        size = size + size_of(id)
        portion.ids[#portion.ids + 1], portion.keyed[#portion.keyed + 1] = id, id
    elseif run == false and #missing == 0 then
        call('ZREM', at('idx:ids'), id)
    end
end
local is_done = #ids == 0
-- A life was replaced, and no descendant is left: nothing needs the facts of its tree.
local facts = deletion.kind == 'ended' and need(of_run(args.id, 'facts'))
local is_left = #descendants_in(at('idx:ids'), args.id) > 0
if is_done and deletion.kind == 'all' then
    -- Keys of runs that were never created, or are deleted.
    for n, id in ipairs(descendants_in(at('idx:keyed'), args.id)) do
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
delete_tree(args.id, portion)
deletion.after = last or deletion.after
if is_done then
    deleting[args.id] = nil
    if facts and not is_left then
        call('UNLINK', facts)
    end
end
save_deletions()
return { is_done and 'done' or 'more' }
