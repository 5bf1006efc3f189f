// Asks a server the questions of standard input with node-postgres, and prints the answers as JSON.
//
//   node main.js < questions.json > answers.json

import { readFileSync } from "node:fs";
import { pipeline } from "node:stream/promises";

import pg from "pg";
import { to as copyTo } from "pg-copy-streams";
import Cursor from "pg-cursor";
import QueryStream from "pg-query-stream";

const questions = JSON.parse(readFileSync(0, "utf8"));
const address = { host: questions.host, port: questions.port, user: "anyone", database: "strongback" };

// A Date has milliseconds only. This is how programs keep the microseconds.
pg.types.setTypeParser(pg.types.builtins.TIMESTAMPTZ, micros);

// It reads arrays of numeric as numbers, which are too short for u64.
pg.types.setTypeParser(1231, (text) => pg.types.arrayParser.create(text, String).parse());

const typeNames = new Map(Object.entries(pg.types.builtins).map(([name, oid]) => [oid, name]));

function micros(text) {
  const [, seconds, fraction = "", zone] = /^(.*?\d\d:\d\d:\d\d)(?:\.(\d+))?([+-]\d\d.*)$/.exec(text);
  const iso = `${seconds.replace(" ", "T")}${zone.length === 3 ? `${zone}:00` : zone}`;
  return BigInt(Date.parse(iso)) * 1000n + BigInt(fraction.padEnd(6, "0"));
}

// A value as JSON can hold it.
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0))) {
    return Object.is(value, -0) ? "-0" : String(value);
  }
  return value;
}

function native({ kind, value }) {
  if (kind === "time") return new Date(value / 1000);
  if (kind === "times") return value.map((us) => new Date(us / 1000));
  return value;
}

async function ask(client, question, more = {}) {
  const values = question.arguments.map(native);
  const result = await client.query({ text: question.sql, values, rowMode: "array", ...more });
  return {
    types: result.fields.map((field) => typeNames.get(field.dataTypeID) ?? String(field.dataTypeID)),
    rows: result.rows.map((row) => row.map(plain)),
  };
}

async function each(client, asked, more) {
  const answers = [];
  for (const question of asked) {
    try {
      answers.push(await ask(client, question, more));
    } catch (error) {
      throw new Error(`${question.sql}: ${error.message}`);
    }
  }
  return answers;
}

async function connected(run, more = {}) {
  const client = new pg.Client({ ...address, ...more });
  await client.connect();
  try {
    return await run(client);
  } finally {
    await client.end();
  }
}

class Sum {
  rows = 0;
  total = 0;
  sum = 0;

  add([n, p]) {
    const number = Number(n);
    if (this.rows === 0) this.first = number;
    this.rows += 1;
    this.total += number;
    this.last = number;
    this.sum += p;
  }
}

async function stateOf(promise) {
  try {
    await promise;
    return "no error";
  } catch (error) {
    return error.code ?? String(error);
  }
}

const features = {
  connect: (client) => ask(client, questions.connect),
  columns: (client) => each(client, questions.columns),
  values: (client) => ask(client, questions.values),
  special: (client) => ask(client, questions.special),
  arrays: (client) => ask(client, questions.arrays),
  elements: (client) => ask(client, questions.elements),
  parameters: (client) => each(client, questions.parameters),
  any: (client) => each(client, questions.any),
  limit: (client) => ask(client, questions.limit),

  // The same by statements with a name, and in binary.
  async modes(client) {
    const all = [questions.limit, ...questions.parameters, ...questions.any];
    const named = [];
    for (const [at, question] of all.entries()) named.push(await ask(client, question, { name: `q${at}` }));
    return { named };
  },

  async prepared(client) {
    const rows = [];
    for (const value of questions.prepared.values) {
      const query = { name: "again", text: questions.prepared.sql, values: [value], rowMode: "array" };
      rows.push((await client.query(query)).rows[0].map(plain));
    }
    const listed = await client.query("select count(*)::int as n from pg_prepared_statements where name = 'again'");
    return { rows, listed: listed.rows[0].n };
  },

  // By a portal that is read in parts, and by a stream over one.
  async parts(client) {
    const portal = new Sum();
    const cursor = client.query(new Cursor(questions.parts.sql, [], { rowMode: "array" }));
    for (;;) {
      const rows = await cursor.read(questions.parts.rows);
      if (rows.length === 0) break;
      for (const row of rows) portal.add(row);
    }
    await cursor.close();
    const streamed = new Sum();
    const options = { rowMode: "array", batchSize: questions.parts.rows };
    for await (const row of client.query(new QueryStream(questions.parts.sql, [], options))) streamed.add(row);
    // One that is left before its end.
    const left = client.query(new Cursor(questions.parts.sql));
    await left.read(1);
    await left.close();
    await client.query("select 1");
    return [portal, streamed];
  },

  async copy(client) {
    const stream = client.query(copyTo(questions.copy));
    const chunks = [];
    await pipeline(stream, async (source) => {
      for await (const chunk of source) chunks.push(chunk);
    });
    return [Buffer.concat(chunks).toString("utf8"), stream.rowCount];
  },

  async errors(client) {
    const states = [];
    for (const sql of questions.errors) states.push(await stateOf(client.query(sql)));
    states.push(await stateOf(ask(client, questions.refused)));
    return states;
  },

  // node-postgres cancels by a second client, which only sends the request.
  async cancel(client) {
    const query = new pg.Query(questions.endless_count);
    const ended = new Promise((resolve) => {
      query.on("error", (error) => resolve(error.code));
      query.on("end", () => resolve("no error"));
    });
    client.query(query);
    let state;
    while (state === undefined) {
      const canceller = new pg.Client(address);
      canceller.connection.on("error", () => {});
      canceller.cancel(client, query);
      const closed = new Promise((resolve) => canceller.connection.once("end", resolve));
      state = await Promise.race([ended, closed.then(() => undefined)]);
    }
    // A request that was on its way meets the next statement.
    while ((await stateOf(client.query("select 1"))) === "57014");
    return [state, (await ask(client, { sql: "select 1", arguments: [] })).rows];
  },

  async transactions(client) {
    const states = [];
    for (const begin of ["begin", "begin isolation level serializable read only deferrable"]) {
      await client.query(begin);
      await client.query("select 1");
      states.push((await client.query("commit")).command);
    }
    await client.query("begin");
    states.push(await stateOf(client.query(questions.errors[0])));
    states.push(await stateOf(client.query("select 1")));
    states.push((await client.query("rollback")).command);
    await client.query("select 1");
    return states;
  },

  // A connection goes back to its pool, is reset, and is taken again.
  async reset() {
    const pool = new pg.Pool({ ...address, max: 1 });
    const seen = [];
    for (const sql of ["set application_name = 'mine'", "discard all"]) {
      const client = await pool.connect();
      await client.query(sql);
      seen.push((await client.query("show application_name")).rows[0].application_name, client.processID);
      client.release();
    }
    await pool.end();
    return seen;
  },
};

const answers = {};
for (const [name, run] of Object.entries(features)) {
  try {
    answers[name] = { value: await connected(run) };
  } catch (error) {
    answers[name] = { error: `${error.code ?? ""} ${error.message}` };
  }
}
process.stdout.write(JSON.stringify(answers));
