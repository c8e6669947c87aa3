-- Delete a run with its descendants and contents.
--
-- ARGV[2]  msgpack: id, uid to delete only that life; for retention: before (microseconds, text), statuses (a list
--          or nil); only_ended: keep a tree with open runs, except those that open_at maps to their last commit or
--          to false; sends: items to deliver if the tree is deleted; checked: the name of a "check" after which
--          the caller has read that all descendants have ended
-- Returns  {"want", keys}, {"open", ids} of some open runs, {"kept"} if it must not be deleted, {"check", name} if
--          the tree is large: the caller reads whether all descendants have ended and calls again, or
--          {"done" or "marked", "1" if it existed, whether the outbox was used}: "marked" if the descendants are
--          to be deleted in portions (delete_portion.lua)

-- include: prelude
-- include: runs
-- include: inbox
-- include: tasks
-- include: run_end

local args = cmsgpack.unpack(ARGV[2])

-- Whether retention may delete a tree: its root ended before the time with one of the statuses, and no run is open.
local function is_old(tree)
    local root = find(args.id)
    if not root or not root.ended or tonumber(root.ended) >= tonumber(args.before) then
        return false
    end
    local is_wanted = not args.statuses
    for _, status in ipairs(args.statuses or {}) do
        is_wanted = is_wanted or status == root.status
    end
    for _, id in ipairs(tree.ids) do
        is_wanted = is_wanted and is_finished(find(id))
    end
    return is_wanted
end

-- The name of a check, with which the caller comes back: it is valid as long as no descendant changes. Nil if the
-- caller has passed it.
local function check_of(id)
    local deletion = deleting and deleting[id]
    if deletion and deletion.kind == 'check' and deletion.name == args.checked then
        return nil
    end
    if not (deletion and deletion.kind == 'check') then
        deletion = { kind = 'check', at = now_text, name = int(server_time()) .. ' ' .. args.nonce }
        set_deletion(id, deletion)
    end
    return deletion.name
end

-- Whether an open run is as the caller has seen it.
local function is_seen(run)
    local at_commit = args.open_at[run.id]
    return at_commit == false or at_commit == (run.commit or '')
end

local before = deleting and deleting[args.id]
if before and before.kind ~= 'check' then
    need('deleting:' .. args.id)  -- the rest of an earlier life
end
local tree = plan_tree(args.id)
for _, send in ipairs(args.sends or {}) do
    if send.to then
        need_outbox()
    else
        need_delivery(send)
    end
end
if #missing > 0 then
    return { 'want', missing }
end
if args.before and not is_old(tree) then
    return { 'kept' }
end
local root = find(args.id)
if args.uid and not (root and root.uid == args.uid) then
    return { 'kept' }
end
if args.only_ended then
    local open = {}
    for _, id in ipairs(tree.ids) do
        local run = find(id)
        if #open < 100 and not is_finished(run) and not is_seen(run) then
            open[#open + 1] = id
        end
    end
    if #open > 0 then
        return { 'open', open }
    end
end
local check = tree.deletion and (args.before or args.only_ended) and check_of(args.id)
if check then
    return { 'check', check }
end
delete_tree(args.id, tree)
for _, send in ipairs(args.sends or {}) do
    if send.to then
        put_in_outbox(send.entry)
    else
        deliver_item(send)
    end
end
flush()
return { tree.deletion and 'marked' or 'done', tree.found and '1' or '0', (has_outbox_entries or has_returns) and '1' or '0' }
