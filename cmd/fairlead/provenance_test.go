package main

import (
	"bytes"
	"context"
	"crypto"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// signed verifies an envelope with the public key in PEM, by the code with which cosign verifies attestations, and searches
// its statement for texts: "signed FILE KEY TEXT...".
func signed(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: signed FILE KEY TEXT...")
	}
	envelope := []byte(ts.ReadFile(args[0]))
	key, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(ts.ReadFile(args[1])))
	ts.Check(err)
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	ts.Check(err)
	if err := dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(envelope), nil); (err != nil) != neg {
		ts.Fatalf("the signature of %s: %v", args[0], err)
	}
	var e struct{ PayloadType, Payload string }
	ts.Check(json.Unmarshal(envelope, &e))
	statement, err := base64.StdEncoding.DecodeString(e.Payload)
	ts.Check(err)
	for _, text := range args[2:] {
		if e.PayloadType != "application/vnd.in-toto+json" || !strings.Contains(string(statement), text) {
			ts.Fatalf("the statement of type %s does not contain %q: %s", e.PayloadType, text, statement)
		}
	}
}

// alter replaces a text in all records of the table of a control plane that has ended: "alter DATA OLD NEW". A person who
// can write to the table, but has no signing key, can do this.
func alter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: alter DATA OLD NEW")
	}
	file := ts.MkAbs(args[0]) + "/table.db"
	_, err := os.Stat(file)
	ts.Check(err)
	db, err := sqlitedb.Open(context.Background(), file, sqlitedb.Options{})
	ts.Check(err)
	var n int64
	ts.Check(db.Update(context.Background(), func(tx *sql.Tx) error {
		changed, err := tx.Exec(`UPDATE items SET body = CAST(replace(CAST(body AS TEXT), ?1, ?2) AS BLOB) WHERE instr(CAST(body AS TEXT), ?1) > 0`, args[1], args[2])
		if err == nil {
			n, err = changed.RowsAffected()
		}
		return err
	}))
	ts.Check(db.Close())
	if n == 0 {
		ts.Fatalf("no record contains %q", args[1])
	}
}
