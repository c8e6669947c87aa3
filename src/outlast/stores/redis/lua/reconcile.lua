-- Hold the indexes against the records, which are the truth: add what is missing, drop what is wrong.
--
-- KEYS     the states of the runs, all indexes and shelves
-- ARGV[2]  msgpack list of ids: runs to be filed
-- ARGV[3]  msgpack list of set, member, id, flat: places to be looked at
-- Returns  {"want", keys} or {"done", how many places were mended}

-- include: head
-- include: runs

local STATUSES = {
    'pending', 'running', 'waiting', 'halted', 'paused', 'completed', 'failed', 'cancelled',
}
local ids, places = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
for _, name in ipairs({ 'ids', 'created', 'updated', 'filed', 'parent', 'attr', 'ended' }) do
    need('idx:' .. name)
end
for _, status in ipairs(STATUSES) do
    need('idx:status:' .. status)
end
need_shelves()
for _, id in ipairs(ids) do
    find(id)
end
for i = 3, #places, 3 do
    find(places[i])
end
if #missing > 0 then
    return { 'want', missing }
end
local mended = 0

local function add(set, score, member)
    mended = mended + call('ZADD', at(set), score, member)
end

-- Every place that a run should have: set → member → score; a SET has no score.
local function places_of(run)
    local created = sortable(run.created) .. run.id
    local found = {
        ['idx:ids'] = { [run.id] = '0' },
        ['idx:created'] = { [created] = '0' },
        ['idx:updated'] = { [sortable(run.updated) .. run.id] = '0' },
        ['idx:filed'] = { [filed_as(run)] = '0' },
        ['idx:parent'] = run.parent and { [framed(run.parent) .. created] = '0' } or {},
        ['idx:ended'] = run.ended and { [run.id] = run.ended } or {},
        ['idx:attr'] = {},
    }
    for _, one in ipairs(tags_of(run)) do
        found['idx:attr'][framed(one) .. created] = '0'
    end
    local shelf, score, member = shelf_of(run)
    if shelf then
        found[shelf] = { [member] = score }
    end
    return found
end

for _, id in ipairs(ids) do
    local run = find(id)
    for set, members in pairs(run and places_of(run) or {}) do
        for member, score in pairs(members) do
            add(set, score, member)
        end
    end
    if run then
        mended = mended + call('SADD', at('idx:status:' .. run.status), id)
    end
end
for i = 1, #places, 3 do
    local set, member, run = places[i], places[i + 1], find(places[i + 2])
    local status = set:match('^idx:status:(.*)$')
    if status then
        if not run or run.status ~= status then
            mended = mended + call('SREM', at(set), member)
        end
    elseif not run or not (places_of(run)[set] or {})[member] then
        mended = mended + call('ZREM', at(set), member)
    end
end
return { 'done', int(mended) }
