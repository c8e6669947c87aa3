-- Which runs, newest first. Each query walks the index that narrows the search most and stops at
-- the limit; the other filters are looked at on the way. Parameters are the same for all:
--   $1 workflow   $2 statuses   $3 parent   $4 marks of attributes   $5, $6 the cursor   $7 limit

-- name: find_newest
SELECT v.* FROM (
    SELECT r.key FROM @runs AS r
    WHERE (r.created_at, r.id) < ($5::bigint, $6::text)
      AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
      AND ($3::text IS NULL OR r.parent = $3)
      AND NOT EXISTS (
          SELECT FROM unnest($4::bytea[]) AS m (mark)
          WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
      )
    ORDER BY r.created_at DESC, r.id DESC
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.created_at DESC, v.id DESC;

-- name: find_filed
-- Runs are filed by workflow and status: the newest of the files that are asked for, merged.
WITH RECURSIVE named (workflow) AS (
    SELECT coalesce($1::text, (SELECT r.workflow FROM @runs AS r ORDER BY r.workflow LIMIT 1))
    UNION ALL
    SELECT (
        SELECT r.workflow FROM @runs AS r WHERE r.workflow > named.workflow
        ORDER BY r.workflow LIMIT 1
    )
    FROM named
    WHERE named.workflow IS NOT NULL AND $1 IS NULL
)
SELECT v.* FROM (
    SELECT f.key FROM named CROSS JOIN unnest($2::text[]) AS s (status) CROSS JOIN LATERAL (
        SELECT r.key, r.created_at, r.id FROM @runs AS r
        WHERE r.workflow = named.workflow AND r.status = s.status
          AND (r.created_at, r.id) < ($5::bigint, $6::text)
          AND ($3::text IS NULL OR r.parent = $3)
          AND NOT EXISTS (
              SELECT FROM unnest($4::bytea[]) AS m (mark)
              WHERE NOT EXISTS (
                  SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark
              )
          )
        ORDER BY r.created_at DESC, r.id DESC
        LIMIT $7
    ) AS f
    WHERE named.workflow IS NOT NULL
    ORDER BY f.created_at DESC, f.id DESC
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.created_at DESC, v.id DESC;

-- name: find_children
SELECT v.* FROM (
    SELECT r.key FROM @runs AS r
    WHERE r.parent = $3::text AND (r.created_at, r.id) < ($5::bigint, $6::text)
      AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
      AND NOT EXISTS (
          SELECT FROM unnest($4::bytea[]) AS m (mark)
          WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
      )
    ORDER BY r.created_at DESC, r.id DESC
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.created_at DESC, v.id DESC;

-- name: find_attributed
SELECT v.* FROM (
    SELECT r.key FROM @attributes AS b JOIN @runs AS r ON r.key = b.run_key
    WHERE b.mark = ($4::bytea[])[1] AND b.created_at <= $5::bigint
      AND (r.created_at, r.id) < ($5, $6::text)
      AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
      AND ($3::text IS NULL OR r.parent = $3)
      AND NOT EXISTS (
          SELECT FROM unnest($4) AS m (mark)
          WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
      )
    ORDER BY b.created_at DESC, r.id DESC
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.created_at DESC, v.id DESC;

-- name: find_oldest
SELECT v.* FROM (
    SELECT r.key FROM @runs AS r
    WHERE (r.created_at, r.id) > ($5::bigint, $6::text)
      AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
      AND ($3::text IS NULL OR r.parent = $3)
      AND NOT EXISTS (
          SELECT FROM unnest($4::bytea[]) AS m (mark)
          WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
      )
    ORDER BY r.created_at, r.id
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.created_at, v.id;

-- name: find_latest
-- By their last change runs are indexed while nobody holds them. Those that are held are few, and looked
-- at one by one.
SELECT v.* FROM (
    SELECT f.key FROM (
        (SELECT r.key, r.updated_at, r.id FROM @runs AS r
        WHERE r.rested_at IS NOT NULL AND (r.rested_at, r.id) < ($5::bigint, $6::text)
          AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
          AND ($3::text IS NULL OR r.parent = $3)
          AND NOT EXISTS (
              SELECT FROM unnest($4::bytea[]) AS m (mark)
              WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
          )
        ORDER BY r.rested_at DESC, r.id DESC
        LIMIT $7)
        UNION ALL
        (SELECT r.key, r.updated_at, r.id FROM @runs AS r
        WHERE r.owner IS NOT NULL AND (r.updated_at, r.id) < ($5::bigint, $6::text)
          AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
          AND ($3::text IS NULL OR r.parent = $3)
          AND NOT EXISTS (
              SELECT FROM unnest($4::bytea[]) AS m (mark)
              WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
          )
        ORDER BY r.updated_at DESC, r.id DESC
        LIMIT $7)
    ) AS f
    ORDER BY f.updated_at DESC, f.id DESC
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.updated_at DESC, v.id DESC;

-- name: find_stalest
SELECT v.* FROM (
    SELECT f.key FROM (
        (SELECT r.key, r.updated_at, r.id FROM @runs AS r
        WHERE r.rested_at IS NOT NULL AND (r.rested_at, r.id) > ($5::bigint, $6::text)
          AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
          AND ($3::text IS NULL OR r.parent = $3)
          AND NOT EXISTS (
              SELECT FROM unnest($4::bytea[]) AS m (mark)
              WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
          )
        ORDER BY r.rested_at, r.id
        LIMIT $7)
        UNION ALL
        (SELECT r.key, r.updated_at, r.id FROM @runs AS r
        WHERE r.owner IS NOT NULL AND (r.updated_at, r.id) > ($5::bigint, $6::text)
          AND ($1::text IS NULL OR r.workflow = $1) AND ($2::text[] IS NULL OR r.status = ANY ($2))
          AND ($3::text IS NULL OR r.parent = $3)
          AND NOT EXISTS (
              SELECT FROM unnest($4::bytea[]) AS m (mark)
              WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = r.key AND a.mark = m.mark)
          )
        ORDER BY r.updated_at, r.id
        LIMIT $7)
    ) AS f
    ORDER BY f.updated_at, f.id
    LIMIT $7
) AS found JOIN @records AS v ON v.key = found.key
ORDER BY v.updated_at, v.id;
