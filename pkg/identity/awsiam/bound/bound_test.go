package bound_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
)

const (
	planRole  = "arn:aws:iam::111122223333:role/fairlead/ins_1/plan"
	applyRole = "arn:aws:iam::111122223333:role/fairlead/ins_1/apply"
)

// TestBoundTokenKeepsItsRole: the control plane reads the role that the agent chose, and no holder of the token can change it.
func TestBoundTokenKeepsItsRole(t *testing.T) {
	m := identity.NewMinter([]byte(strings.Repeat("k", identity.MinKey))).InGeneration(3)
	now := time.Unix(1_800_000_000, 0)
	launch := m.Mint(identity.Claims{Purpose: identity.Launch, Subject: "job_1", Epoch: 7})
	tied := bound.Token(launch, planRole)
	if got := bound.Role(tied); got != planRole {
		t.Errorf("the step reads the role %q", got)
	}
	c, err := m.Read(tied, now, identity.Launch)
	if err != nil || c.Role != planRole || c.Subject != "job_1" || c.Epoch != 7 {
		t.Fatalf("the control plane reads %+v, %v", c, err)
	}
	if c, err = m.Read(launch, now, identity.Launch); err != nil || c.Role != "" {
		t.Fatalf("the token that the agent keeps reads as %+v, %v", c, err)
	}
	text, mac := tied[:strings.LastIndexByte(tied, '.')], tied[strings.LastIndexByte(tied, '.')+1:]
	original, _, _ := bound.Cut(text)
	_, other, _ := strings.Cut(bound.Token(launch, applyRole), "~")
	other, _, _ = strings.Cut(other, ".")
	for consequence, forged := range map[string]string{
		"a thief removes the role":                   original + "." + mac,
		"a thief puts another role in":               original + "~" + other + "." + mac,
		"a thief binds the token again":              bound.Token(tied, applyRole),
		"a thief binds the text without its key":     bound.Token(original+"."+mac, planRole),
		"a thief leaves the role empty":              bound.Token(launch, ""),
		"a thief makes the role unreadable":          strings.Replace(tied, "~", "~*", 1),
		"a lease token is bound, which nothing does": bound.Token(m.Mint(identity.Claims{Purpose: identity.Lease, Subject: "job_1", Epoch: 7}), planRole),
		"a session token is bound":                   bound.Token(m.Mint(identity.Claims{Purpose: identity.Session, Subject: "run_1/ses_1"}), planRole),
		"an invented token is bound":                 bound.Token("fll_job_1.7.0.g3.AAAA", planRole),
		"a text without a signature":                 "fll_job_1",
	} {
		if c, err := m.Read(forged, now, identity.Launch, identity.Warm, identity.Lease, identity.Session); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("%s: the control plane reads %+v, %v", consequence, c, err)
		}
	}
	if bound.Role(launch) != "" || bound.Role("") != "" {
		t.Error("a token without a role has one")
	}
}
