-- Repair the indexes from the records of runs: add missing members, remove wrong ones.
--
-- KEYS     the states of the runs, all indexes
-- ARGV[2]  msgpack list of ids: runs to index
-- ARGV[3]  msgpack list of set, member, id, flat: members to check
-- Returns  {"want", keys} or {"done", how many members were repaired}

-- include: prelude
-- include: runs

local STATUSES = {
    'pending', 'running', 'waiting', 'halted', 'paused', 'completed', 'failed', 'cancelled',
}
local ids, places = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
for _, name in ipairs({ 'ids', 'created', 'updated', 'workflow', 'parent', 'attr', 'ended' }) do
    need('idx:' .. name)
end
for _, status in ipairs(STATUSES) do
    need('idx:status:' .. status)
end
need_claim_indexes()
for _, id in ipairs(ids) do
    find(id)
end
for i = 3, #places, 3 do
    find(places[i])
end
if #missing > 0 then
    return { 'want', missing }
end
local repaired = 0

local function add(set, score, member)
    repaired = repaired + call('ZADD', at(set), score, member)
end

-- All index members of a run: set → member → score; a SET has no score.
local function index_members_of(run)
    local created = sortable(run.created) .. run.id
    local found = {
        ['idx:ids'] = { [run.id] = '0' },
        ['idx:created'] = { [created] = '0' },
        ['idx:updated'] = { [sortable(run.updated) .. run.id] = '0' },
        ['idx:workflow'] = { [workflow_member(run)] = '0' },
        ['idx:parent'] = run.parent and { [framed(run.parent) .. created] = '0' } or {},
        ['idx:ended'] = run.ended and { [run.id] = run.ended } or {},
        ['idx:attr'] = {},
    }
    for _, one in ipairs(tags_of(run)) do
        found['idx:attr'][framed(one) .. created] = '0'
    end
    local index, score, member = claim_index_of(run)
    if index then
        found[index] = { [member] = score }
    end
    return found
end

for _, id in ipairs(ids) do
    local run = find(id)
    for set, members in pairs(run and index_members_of(run) or {}) do
        for member, score in pairs(members) do
            add(set, score, member)
        end
    end
    if run then
        repaired = repaired + call('SADD', at('idx:status:' .. run.status), id)
    end
end
for i = 1, #places, 3 do
    local set, member, run = places[i], places[i + 1], find(places[i + 2])
    local status = set:match('^idx:status:(.*)$')
    if status then
        if not run or run.status ~= status then
            repaired = repaired + call('SREM', at(set), member)
        end
    elseif not run or not (index_members_of(run)[set] or {})[member] then
        repaired = repaired + call('ZREM', at(set), member)
    end
end
return { 'done', int(repaired) }
