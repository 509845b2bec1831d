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

func rule(change func(*oidc.Trust)) oidc.Trust {
	t := oidc.Trust{Issuer: "https://issuer.example/a", Audience: audience, Claims: map[string]string{"sub": main}}
	change(&t)
	return t
}

func claimed(issuer string, pairs ...string) oidc.Trust {
	t := oidc.Trust{Issuer: issuer, Audience: audience, Claims: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		t.Claims[pairs[i]] = pairs[i+1]
	}
	return t
}

func TestATrustIsNone(t *testing.T) {
	issuers := map[string]string{
		"nobody is trusted":                      "",
		"whoever is between could be the issuer": "http://issuer.example",
		"this machine is reached without a rule": "http://127.0.0.1:8080",
		"a file is read":                         "file:///etc/passwd",
		"it is no URL":                           "issuer.example",
		"it has no host":                         "https:///x",
		"a name in the host hides another":       "https://issuer.example@evil.example",
		"a query makes another page its own":     "https://issuer.example/?x=",
		"an empty query too":                     "https://issuer.example/?",
		"a fragment is not sent":                 "https://issuer.example/#x",
		"an empty fragment too":                  "https://issuer.example/#",
		"a case is another issuer to some":       "https://Issuer.example",
		"so is the scheme's":                     "HTTPS://issuer.example",
		"so is a final dot":                      "https://issuer.example.",
		"a path climbs out":                      "https://issuer.example/a/../b",
		"a path stays where it is":               "https://issuer.example/./b",
		"two slashes are one to some":            "https://issuer.example//b",
		"an escape is a letter to some":          "https://issuer.example/%61",
		"a backslash is a slash to some":         `https://issuer.example\@evil.example`,
		"any issuer is trusted":                  "https://*.example",
		"a letter looks like another":            "https://issuеr.example",
		"a space is before it":                   " https://issuer.example",
		"a line break is in it":                  "https://issuer.example/\n",
		"it is longer than anybody's":            "https://issuer.example/" + strings.Repeat("a", 500),
	}
	bad := map[string]oidc.Trust{
		"any audience is taken":                 rule(func(t *oidc.Trust) { t.Audience = "" }),
		"an audience is a pattern":              rule(func(t *oidc.Trust) { t.Audience = "https://*" }),
		"an audience could be a bound one":      rule(func(t *oidc.Trust) { t.Audience = "a#b" }),
		"an audience looks like another":        rule(func(t *oidc.Trust) { t.Audience = "fаirlead" }),
		"all that the issuer knows are trusted": rule(func(t *oidc.Trust) { t.Claims = nil }),
		"a bare star":                           rule(func(t *oidc.Trust) { t.Claims["sub"] = "*" }),
		"a star beside one that says something": rule(func(t *oidc.Trust) { t.Claims["repository"] = "*" }),
		"two stars":                             rule(func(t *oidc.Trust) { t.Claims["sub"] = "**" }),
		"stars and what is between all names":   rule(func(t *oidc.Trust) { t.Claims["sub"] = "*:*/*" }),
		"stars and a hyphen":                    rule(func(t *oidc.Trust) { t.Claims["sub"] = "*-*" }),
		"two stars that seem to cross":          rule(func(t *oidc.Trust) { t.Claims["sub"] = "repo:org/**" }),
		"a claim that may be empty":             rule(func(t *oidc.Trust) { t.Claims["sub"] = "" }),
		"a claim that looks like another":       rule(func(t *oidc.Trust) { t.Claims["sub"] = "repo:оrg/x" }),
		"a claim with a line break":             rule(func(t *oidc.Trust) { t.Claims["sub"] = "a\nb" }),
		"a claim longer than anybody's":         rule(func(t *oidc.Trust) { t.Claims["sub"] = strings.Repeat("a", 600) }),
		"a claim without a name":                rule(func(t *oidc.Trust) { t.Claims[""] = "x" }),
		"a claim whose name looks like another": rule(func(t *oidc.Trust) { t.Claims["ѕub"] = "x" }),
		"the audience by another way":           rule(func(t *oidc.Trust) { t.Claims["aud"] = "x" }),
		"the issuer by another way":             rule(func(t *oidc.Trust) { t.Claims["iss"] = "https://issuer.example/*" }),
		"a pointer that is none":                rule(func(t *oidc.Trust) { t.Claims["/a/~2"] = "x" }),
		"a pointer to nothing":                  rule(func(t *oidc.Trust) { t.Claims["/"] = "x" }),
		"more claims than are looked at":        rule(func(t *oidc.Trust) { maps.Copy(t.Claims, many(21)) }),
		"keys that are none":                    rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`{"keys":[]}`) }),
		"a secret for a key":                    rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}`) }),
		"a private key beside its public half": rule(func(t *oidc.Trust) {
			t.Keys = json.RawMessage(strings.Replace(string(oidctest.Unserved("", nil).KeySet()), `"kid"`, `"d":"AQ","kid"`, 1))
		}),
		"keys that are text":                       rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`"x"`) }),
		"keys longer than anybody's":               rule(func(t *oidc.Trust) { t.Keys = json.RawMessage(`"` + strings.Repeat("x", 33<<10) + `"`) }),
		"GitHub: anybody's repository":             claimed("https://token.actions.githubusercontent.com", "sub", "repo:*/shop:ref:refs/heads/main"),
		"GitHub: anybody whose name begins so":     claimed("https://token.actions.githubusercontent.com", "sub", "repo:org*/x:ref:refs/heads/main"),
		"GitHub: anybody's main":                   claimed("https://token.actions.githubusercontent.com", "ref", "refs/heads/main"),
		"GitHub: an owner that is a pattern":       claimed("https://token.actions.githubusercontent.com", "repository_owner", "org*"),
		"GitLab: anybody's project":                claimed("https://gitlab.com", "sub", "project_path:*/shop:ref_type:branch:ref:main"),
		"Google: any service account of a project": claimed("https://accounts.google.com", "email", "*@acme.iam.gserviceaccount.com"),
		"Buildkite: anybody's pipeline":            claimed("https://agent.buildkite.com", "sub", "organization:*:pipeline:shop:ref:refs/heads/main:commit:*:step:*"),
		"HCP Terraform: anybody's workspace":       claimed("https://app.terraform.io", "terraform_workspace_name", "shop"),
		"Google: anybody":                          claimed("https://accounts.google.com", "azp", "x"),
	}
	for consequence, issuer := range issuers {
		bad[consequence] = rule(func(t *oidc.Trust) { t.Issuer = issuer })
	}
	for consequence, trust := range bad {
		if err := trust.Check(oidc.Rules{}); fairlead.KindOf(err) != fairlead.KindInvalid || fairlead.CodeOf(err) != "invalid-oidc-trust" {
			t.Errorf("%s: %+v is taken: %v", consequence, trust, err)
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

func TestTrustsOfPlatforms(t *testing.T) {
	for name, trust := range map[string]oidc.Trust{
		"EKS":                   claimed("https://oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF", "sub", "system:serviceaccount:fairlead:runner"),
		"AKS":                   claimed("https://westeurope.oic.prod-aks.azure.com/6f3a/8c7a/", "sub", "system:serviceaccount:fairlead:runner"),
		"GKE":                   claimed("https://container.googleapis.com/v1/projects/acme/locations/europe-west3/clusters/prod", "sub", "system:serviceaccount:fairlead:runner"),
		"GitHub by name":        claimed("https://token.actions.githubusercontent.com", "sub", "repo:org/*:ref:refs/heads/main"),
		"GitHub by number":      claimed("https://token.actions.githubusercontent.com", "repository_owner_id", "65", "ref", "refs/heads/main"),
		"GitHub by repository":  claimed("https://token.actions.githubusercontent.com", "repository", "org/*"),
		"GitLab":                claimed("https://gitlab.com", "project_path", "group/project", "ref", "main"),
		"Buildkite":             claimed("https://agent.buildkite.com", "organization_id", "0184990a", "pipeline_slug", "shop"),
		"Buildkite by sub":      claimed("https://agent.buildkite.com", "sub", "organization:acme:pipeline:shop:ref:refs/heads/main:commit:*:step:*"),
		"HCP Terraform":         claimed("https://app.terraform.io", "sub", "organization:acme:project:Default Project:workspace:shop:run_phase:*"),
		"GitLab by number":      claimed("https://gitlab.com", "project_id", "7"),
		"a GitLab of one's own": claimed("https://gitlab.acme.example:8443", "namespace_path", "ops"),
		"Google":                claimed("https://accounts.google.com", "sub", "1234567890"),
		"Azure":                 claimed("https://sts.windows.net/6f3a/", "oid", "8c7a"),
		"Azure, version 2":      claimed("https://login.microsoftonline.com/6f3a/v2.0", "oid", "8c7a"),
		"an address":            claimed("https://203.0.113.7:6443", "/kubernetes.io/namespace", "fairlead"),
		"keys of its own":       rule(func(t *oidc.Trust) { t.Keys = oidctest.Unserved("", nil).KeySet() }),
	} {
		if err := trust.Check(oidc.Rules{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, issuer := range []string{"http://127.0.0.1:8080", "http://localhost", "http://[::1]:80", "https://127.0.0.1"} {
		if err := rule(func(t *oidc.Trust) { t.Issuer = issuer }).Check(oidc.Rules{Loopback: true}); err != nil {
			t.Errorf("%s, where this machine is allowed: %v", issuer, err)
		}
	}
	for _, issuer := range []string{"http://issuer.example", "http://10.0.0.1", "http://127.0.0.1.nip.io", "http://localhost.evil.example"} {
		if rule(func(t *oidc.Trust) { t.Issuer = issuer }).Check(oidc.Rules{Loopback: true}) == nil {
			t.Errorf("%s is taken for this machine", issuer)
		}
	}
}

// A pattern is the regular expression that the documentation says it is; and
// what it matches has the same parts.
func TestAPatternIsWhatIsSaidOfIt(t *testing.T) {
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
			t.Fatalf("%q matches %q, which has other parts", pattern, sub)
		}
	})
}
