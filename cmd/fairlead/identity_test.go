package main

import (
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

// issuer returns two commands. "issuer" starts an OIDC issuer on this machine and sets
// ISSUER to its URL. "token FILE AUDIENCE SUBJECT" writes a token of this issuer to FILE.
func issuer(t *testing.T) (serve, sign func(*testscript.TestScript, bool, []string)) {
	var mu sync.Mutex
	made := map[string]*oidctest.Issuer{} // by URL: stories run side by side
	serve = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) > 0 {
			ts.Fatalf("usage: issuer")
		}
		mu.Lock()
		defer mu.Unlock()
		i := oidctest.NewPlain(time.Now)
		t.Cleanup(i.Close)
		made[i.URL] = i
		ts.Setenv("ISSUER", i.URL)
	}
	sign = func(ts *testscript.TestScript, neg bool, args []string) {
		mu.Lock()
		defer mu.Unlock()
		i := made[ts.Getenv("ISSUER")]
		if neg || len(args) != 3 || i == nil {
			ts.Fatalf("usage: token FILE AUDIENCE SUBJECT, after issuer")
		}
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(i.Token(args[1], map[string]any{"sub": args[2]})+"\n"), 0o600))
	}
	return serve, sign
}

// export reads the lines NAME=value of the last standard output or error, and sets these
// variables: "export stdout".
func export(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: export stdout|stderr")
	}
	for _, m := range regexp.MustCompile(`(?m)^ *([A-Z_]+)=(\S+)$`).FindAllStringSubmatch(ts.ReadFile(args[0]), -1) {
		ts.Setenv(m[1], m[2])
	}
}
