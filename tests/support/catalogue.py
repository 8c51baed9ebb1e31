"""The schema as PostgreSQL's catalogue holds it, in readable lines that can be compared and committed."""

from typing import Any

import psycopg

QUERIES = {
    "tables": """
        SELECT format('%s%s%s%s', c.relname, CASE WHEN c.relrowsecurity THEN ' row security' ELSE '' END,
                      CASE WHEN c.relforcerowsecurity THEN ' forced' ELSE '' END,
                      coalesce(' with ' || array_to_string(c.reloptions, ', '), ''))
          FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace = 'wakeful'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
    """,
    "columns": """
        SELECT format('%s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                      CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
                      coalesce(CASE a.attgenerated WHEN 's' THEN ' generated ' ELSE ' default ' END
                               || pg_get_expr(d.adbin, d.adrelid), ''))
          FROM pg_catalog.pg_class AS c
          JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'wakeful'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
    """,
    # PostgreSQL 18 lists NOT NULL here as well; it stands with the columns already.
    "constraints": """
        SELECT format('%s %s %s%s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid),
                      CASE WHEN k.convalidated THEN '' ELSE ' not valid' END)
          FROM pg_catalog.pg_constraint AS k
         WHERE k.connamespace = 'wakeful'::regnamespace AND k.contype <> 'n'
    """,
    "indexes": """
        SELECT format('%s%s', pg_get_indexdef(i.indexrelid), CASE WHEN i.indisvalid THEN '' ELSE ' invalid' END)
          FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
         WHERE c.relnamespace = 'wakeful'::regnamespace
    """,
    "policies": """
        SELECT format('%s.%s for %s to %s using %s check %s', tablename, policyname, lower(cmd),
                      array_to_string(roles, ', '), coalesce(qual, '-'), coalesce(with_check, '-'))
          FROM pg_catalog.pg_policies WHERE schemaname = 'wakeful'
    """,
    "functions": """
        SELECT format('%s returns %s %s %s%s %s body %s', p.oid::regprocedure, pg_get_function_result(p.oid), l.lanname,
                      CASE p.provolatile WHEN 'v' THEN 'volatile' WHEN 's' THEN 'stable' ELSE 'immutable' END,
                      CASE WHEN p.prosecdef THEN ' security definer' ELSE '' END,
                      coalesce('set ' || array_to_string(p.proconfig, ', '), '-'), left(md5(p.prosrc), 12))
          FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
         WHERE p.pronamespace = 'wakeful'::regnamespace
    """,
    "triggers": """
        SELECT format('%s (%s)', pg_get_triggerdef(t.oid),
                      CASE t.tgenabled WHEN 'O' THEN 'enabled' ELSE 'tgenabled ' || t.tgenabled::text END)
          FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'wakeful'::regnamespace AND NOT t.tgisinternal
    """,
    "grants": """
        SELECT format('%s %s on %s to %s', granted.kind, string_agg(g.privilege_type, ', ' ORDER BY g.privilege_type),
                      granted.name, coalesce(r.rolname, 'PUBLIC'))
          FROM (
                SELECT 'schema' AS kind, n.nspname AS name, n.nspacl AS acl, n.nspowner AS owner
                  FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'wakeful'
                UNION ALL
                SELECT 'table', c.relname, c.relacl, c.relowner
                  FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'wakeful'::regnamespace
                UNION ALL
                SELECT 'column', c.relname || '.' || a.attname, a.attacl, c.relowner
                  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
                 WHERE c.relnamespace = 'wakeful'::regnamespace AND NOT a.attisdropped
                UNION ALL
                SELECT 'function', p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner)),
                       p.proowner
                  FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'wakeful'::regnamespace
               ) AS granted
          CROSS JOIN LATERAL aclexplode(granted.acl) AS g
          LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
         WHERE g.grantee <> granted.owner
         GROUP BY granted.kind, granted.name, r.rolname
    """,
}


def catalogue(dsn: str, prefix: str | None = None) -> str:
    """Everything about schema `wakeful`, sorted, with the role prefix written `<prefix>`."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET search_path TO pg_catalog")
        return "\n\n".join(_section(connection, name, query, prefix) for name, query in QUERIES.items()) + "\n"


def _section(connection: psycopg.Connection[tuple[Any, ...]], name: str, query: str, prefix: str | None) -> str:
    lines = sorted(str(row[0]) for row in connection.execute(query.encode()))
    if prefix:
        lines = sorted(line.replace(f"{prefix}_", "<prefix>_") for line in lines)
    return "\n".join([f"# {name}", *lines])
