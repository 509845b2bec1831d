package oidc_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

// rule returns a valid trust with a change.
func rule(change func(*oidc.Trust)) oidc.Trust {
	t := oidc.Trust{Issuer: "https://issuer.example/a", Audience: audience, Claims: map[string]string{"sub": main}}
	change(&t)
	return t
}

// claimed returns a trust in the issuer with pairs of claims and patterns.
func claimed(issuer string, pairs ...string) oidc.Trust {
	t := oidc.Trust{Issuer: issuer, Audience: audience, Claims: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		t.Claims[pairs[i]] = pairs[i+1]
	}
	return t
}

func TestInvalidTrustsAreRefused(t *testing.T) {
	issuers := map[string]string{
		"an empty issuer":                  "",
		"an issuer without TLS":            "http://issuer.example",
		"this machine without Loopback":    "http://127.0.0.1:8080",
		"a file URL":                       "file:///etc/passwd",
		"no scheme":                        "issuer.example",
		"no host":                          "https:///x",
		"a user before the host":           "https://issuer.example@evil.example",
		"a query":                          "https://issuer.example/?x=",
		"an empty query":                   "https://issuer.example/?",
		"a fragment":                       "https://issuer.example/#x",
		"an empty fragment":                "https://issuer.example/#",
		"an upper-case letter in the host": "https://Issuer.example",
		"an upper-case scheme":             "HTTPS://issuer.example",
		"a final dot in the host":          "https://issuer.example.",
		"a path with ..":                   "https://issuer.example/a/../b",
		"a path with .":                    "https://issuer.example/./b",
		"two slashes in the path":          "https://issuer.example//b",
		"an escape in the path":            "https://issuer.example/%61",
		"a backslash":                      `https://issuer.example\@evil.example`,
		"a star in the host":               "https://*.example",
		"a Cyrillic letter in the host":    "https://issuеr.example",
		"a space at the start":             " https://issuer.example",
		"a line break":                     "https://issuer.example/\n",
		"an issuer of more than 500 bytes": "https://issuer.example/" + strings.Repeat("a", 500),
	}
	bad := map[string]oidc.Trust{
		"no audience":                         rule(func(t *oidc.Trust) { t.Audience = "" }),
		"a star in the audience":              rule(func(t *oidc.Trust) { t.Audience = "https://*" }),
		"a # in the audience":                 rule(func(t *oidc.Trust) { t.Audience = "a#b" }),
		"a Cyrillic letter in the audience":   rule(func(t *oidc.Trust) { t.Audience = "fаirlead" }),
		"no claims":                           rule(func(t *oidc.Trust) { t.Claims = nil }),
		"a star as the only pattern":          rule(func(t *oidc.Trust) { t.Claims["sub"] = "*" }),
		"a star next to a useful pattern":     rule(func(t *oidc.Trust) { t.Claims["repository"] = "*" }),
		"two stars":                           rule(func(t *oidc.Trust) { t.Claims["sub"] = "**" }),
		"stars and separators":                rule(func(t *oidc.Trust) { t.Claims["sub"] = "*:*/*" }),
		"stars and a hyphen":                  rule(func(t *oidc.Trust) { t.Claims["sub"] = "*-*" }),
		"two stars after a prefix":            rule(func(t *oidc.Trust) { t.Claims["sub"] = "repo:org/**" }),
		"an empty pattern":                    rule(func(t *oidc.Trust) { t.Claims["sub"] = "" }),
		"a Cyrillic letter in a pattern":      rule(func(t *oidc.Trust) { t.Claims["sub"] = "repo:оrg/x" }),
		"a line break in a pattern":           rule(func(t *oidc.Trust) { t.Claims["sub"] = "a\nb" }),
		"a pattern of 600 bytes":              rule(func(t *oidc.Trust) { t.Claims["sub"] = strings.Repeat("a", 600) }),
		"a claim without a name":              rule(func(t *oidc.Trust) { t.Claims[""] = "x" }),
		"a Cyrillic letter in a claim's name": rule(func(t *oidc.Trust) { t.Claims["ѕub"] = "x" }),
		"aud as a claim":                      rule(func(t *oidc.Trust) { t.Claims["aud"] = "x" }),
		"iss as a claim":                      rule(func(t *oidc.Trust) { t.Claims["iss"] = "https://issuer.example/*" }),
		"an invalid JSON pointer":             rule(func(t *oidc.Trust) { t.Claims["/a/~2"] = "x" }),
		"an empty JSON pointer":               rule(func(t *oidc.Trust) { t.Claims["/"] = "x" }),
		"too many claims":                     rule(func(t *oidc.Trust) { maps.Copy(t.Claims, many(21)) }),
		"an empty key set":                    rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`{"keys":[]}`) }),
		"a symmetric key":                     rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}`) }),
		"a private key": rule(func(t *oidc.Trust) {
			t.Keys = json.RawMessage(strings.Replace(string(oidctest.Unserved("", nil).KeySet()), `"kid"`, `"d":"AQ","kid"`, 1))
		}),
		"keys that are text":                       rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`"x"`) }),
		"keys of more than 32 KiB":                 rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`"` + strings.Repeat("x", 33<<10) + `"`) }),
		"GitHub: everyone's repository":            claimed("https://token.actions.githubusercontent.com", "sub", "repo:*/shop:ref:refs/heads/main"),
		"GitHub: a star at an owner's end":         claimed("https://token.actions.githubusercontent.com", "sub", "repo:org*/x:ref:refs/heads/main"),
		"GitHub: everyone's main branch":           claimed("https://token.actions.githubusercontent.com", "ref", "refs/heads/main"),
		"GitHub: an owner that is a pattern":       claimed("https://token.actions.githubusercontent.com", "repository_owner", "org*"),
		"GitLab: everyone's project":               claimed("https://gitlab.com", "sub", "project_path:*/shop:ref_type:branch:ref:main"),
		"Google: any service account of a project": claimed("https://accounts.google.com", "email", "*@acme.iam.gserviceaccount.com"),
		"Buildkite: everyone's pipeline":           claimed("https://agent.buildkite.com", "sub", "organization:*:pipeline:shop:ref:refs/heads/main:commit:*:step:*"),
		"HCP Terraform: everyone's workspace":      claimed("https://app.terraform.io", "terraform_workspace_name", "shop"),
		"Google: everyone":                         claimed("https://accounts.google.com", "azp", "x"),
	}
	for name, issuer := range issuers {
		bad[name] = rule(func(t *oidc.Trust) { t.Issuer = issuer })
	}
	for name, trust := range bad {
		if err := trust.Check(oidc.Rules{}); fairlead.KindOf(err) != fairlead.KindInvalid || fairlead.CodeOf(err) != "invalid-oidc-trust" {
			t.Errorf("%s: the error for %+v is %v", name, trust, err)
		}
	}
}

func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[strings.Repeat("a", i+1)] = "x"
	}
	return out
}

func TestTrustsOfPlatformsAreValid(t *testing.T) {
	for name, trust := range map[string]oidc.Trust{
		"EKS":                  claimed("https://oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF", "sub", "system:serviceaccount:fairlead:runner"),
		"AKS":                  claimed("https://westeurope.oic.prod-aks.azure.com/6f3a/8c7a/", "sub", "system:serviceaccount:fairlead:runner"),
		"GKE":                  claimed("https://container.googleapis.com/v1/projects/acme/locations/europe-west3/clusters/prod", "sub", "system:serviceaccount:fairlead:runner"),
		"GitHub by name":       claimed("https://token.actions.githubusercontent.com", "sub", "repo:org/*:ref:refs/heads/main"),
		"GitHub by number":     claimed("https://token.actions.githubusercontent.com", "repository_owner_id", "65", "ref", "refs/heads/main"),
		"GitHub by repository": claimed("https://token.actions.githubusercontent.com", "repository", "org/*"),
		"GitLab":               claimed("https://gitlab.com", "project_path", "group/project", "ref", "main"),
		"Buildkite":            claimed("https://agent.buildkite.com", "organization_id", "0184990a", "pipeline_slug", "shop"),
		"Buildkite by sub":     claimed("https://agent.buildkite.com", "sub", "organization:acme:pipeline:shop:ref:refs/heads/main:commit:*:step:*"),
		"HCP Terraform":        claimed("https://app.terraform.io", "sub", "organization:acme:project:Default Project:workspace:shop:run_phase:*"),
		"GitLab by number":     claimed("https://gitlab.com", "project_id", "7"),
		"a self-hosted GitLab": claimed("https://gitlab.acme.example:8443", "namespace_path", "ops"),
		"Google":               claimed("https://accounts.google.com", "sub", "1234567890"),
		"Azure":                claimed("https://sts.windows.net/6f3a/", "oid", "8c7a"),
		"Azure, version 2":     claimed("https://login.microsoftonline.com/6f3a/v2.0", "oid", "8c7a"),
		"an address":           claimed("https://203.0.113.7:6443", "/kubernetes.io/namespace", "fairlead"),
		"keys in the trust":    rule(func(t *oidc.Trust) { t.Keys = oidctest.Unserved("", nil).KeySet() }),
	} {
		if err := trust.Check(oidc.Rules{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, issuer := range []string{"http://127.0.0.1:8080", "http://localhost", "http://[::1]:80", "https://127.0.0.1"} {
		if err := rule(func(t *oidc.Trust) { t.Issuer = issuer }).Check(oidc.Rules{Loopback: true}); err != nil {
			t.Errorf("%s with Loopback: %v", issuer, err)
		}
	}
	for _, issuer := range []string{"http://issuer.example", "http://10.0.0.1", "http://127.0.0.1.nip.io", "http://localhost.evil.example"} {
		if rule(func(t *oidc.Trust) { t.Issuer = issuer }).Check(oidc.Rules{Loopback: true}) == nil {
			t.Errorf("%s with Loopback is valid, want an error", issuer)
		}
	}
}

// A pattern is equivalent to its documented regular expression, and its matches have the
// same separators.
func TestPatternEqualsItsRegularExpression(t *testing.T) {
	w := newWorld(t)
	parts := regexp.MustCompile(`[^A-Za-z0-9._-]`)
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab]([ab:/@.*-]|\*[ab:])*`).Draw(t, "pattern")
		sub := rapid.StringMatching(`[ab:/@.ä-]{1,8}`).Draw(t, "sub")
		if rapid.Bool().Draw(t, "likely") {
			sub = regexp.MustCompile(`\*`).ReplaceAllStringFunc(pattern, func(string) string { return rapid.StringMatching(`[ab.:-]{0,3}`).Draw(t, "star") })
		}
		w.trust.Claims = map[string]string{"sub": pattern}
		if sub == "" || w.trust.Check(oidc.Rules{}) != nil {
			return
		}
		var re strings.Builder
		for i, literal := range strings.Split(pattern, "*") {
			if i > 0 {
				re.WriteString(`[A-Za-z0-9._-]+`)
			}
			re.WriteString(regexp.QuoteMeta(literal))
		}
		want := regexp.MustCompile(`\A` + re.String() + `\z`).MatchString(sub)
		_, err := w.verify(w.token(claims{"sub": sub}))
		if (err == nil) != want {
			t.Fatalf("%q against %q: %v, want %t", pattern, sub, err, want)
		}
		if err == nil && len(parts.FindAllString(strings.ReplaceAll(pattern, "*", ""), -1)) != len(parts.FindAllString(sub, -1)) {
			t.Fatalf("%q matches %q, which has another number of separators", pattern, sub)
		}
	})
}
