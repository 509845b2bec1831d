package identity_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// A token that this minter did not mint is refused, also if it differs in one character from one that it did.
func FuzzRead(f *testing.F) {
	m := identity.NewMinter(make([]byte, identity.MinKey))
	now := time.Unix(1_790_000_000, 0)
	good := m.Mint(identity.Claims{Purpose: identity.Session, Subject: "run_a/ses_b", Expires: now.Add(time.Hour)})
	f.Add(good)
	f.Add(good + ".")
	f.Add("fls_run_a/ses_b.0.0.g1.x")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := m.Read(token, now, identity.Session, identity.Launch, identity.Warm)
		if err == nil && token != good && m.Mint(c) != token {
			t.Fatalf("%q is accepted as %+v", token, c)
		}
		if err != nil && fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Fatalf("%q: the error is of kind %v", token, fairlead.KindOf(err))
		}
	})
}
