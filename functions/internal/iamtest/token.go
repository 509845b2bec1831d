package iamtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/pkg/identity/oidc"
)

// Provider is an identity provider of OpenID Connect in the account, such as the issuer of an EKS cluster.
type Provider struct {
	Issuer string
	Keys   json.RawMessage // its JSON Web Key Set
}

// name returns the provider's name in ARNs and in the condition keys of trust policies.
func (p Provider) name() string { return strings.TrimPrefix(p.Issuer, "https://") }

// ARN returns the provider's ARN, which trust policies name as the principal.
func (p Provider) ARN(account string) string {
	return "arn:aws:iam::" + account + ":oidc-provider/" + p.name()
}

// AddProvider adds an identity provider. Its tokens take a role whose trust policy permits them.
func (g *Guard) AddProvider(p Provider) { add(g, g.providers, p.Issuer, p) }

const byWebIdentity = "sts:AssumeRoleWithWebIdentity"

// trusts returns what a trust policy requires of the provider's tokens. The IAM simulator does not know the names of providers with a
// colon or a slash, so the Guard decides. It knows the statements that AWS documents for the roles of service accounts: one
// provider, one audience, and subjects, which can have an asterisk. It refuses all others. An asterisk matches less here than for
// IAM: no colon, and not the empty text.
func (p Provider) trusts(account string, policy Policy) ([]oidc.Trust, error) {
	text, err := json.Marshal(policy["Statement"])
	if err != nil {
		return nil, err
	}
	var statements []struct {
		Effect, Action string
		Principal      struct{ Federated string }
		Condition      map[string]map[string]any
	}
	if err := json.Unmarshal(text, &statements); err != nil {
		return nil, unknown("the trust policy %s: %w", text, err)
	}
	var trusts []oidc.Trust
	for _, s := range statements {
		if s.Action != byWebIdentity || s.Principal.Federated != p.ARN(account) {
			continue
		}
		values := map[string][]string{}
		for operator, conditions := range s.Condition {
			for key, value := range conditions {
				for _, text := range asList(value) {
					one, ok := text.(string)
					if !ok || operator != "StringEquals" && operator != "StringLike" || operator == "StringEquals" && strings.Contains(one, "*") || strings.Contains(one, "?") {
						return nil, unknown("the condition %s of %s on %v in a trust policy", operator, key, value)
					}
					values[key] = append(values[key], one)
				}
			}
		}
		audiences, subjects := values[p.name()+":aud"], values[p.name()+":sub"]
		if s.Effect != "Allow" || len(values) != 2 || len(audiences) != 1 || len(subjects) == 0 {
			return nil, unknown("the trust policy %s", text)
		}
		for _, subject := range subjects {
			trust := oidc.Trust{Issuer: p.Issuer, Keys: p.Keys, Audience: audiences[0], Claims: map[string]string{"sub": subject}}
			if err := trust.Check(oidc.Rules{}); err != nil {
				return nil, unknown("the trust policy %s: %w", text, err)
			}
			trusts = append(trusts, trust)
		}
	}
	return trusts, nil
}

// asList returns the values of a condition, which is one value or a list.
func asList(value any) []any {
	if list, ok := value.([]any); ok {
		return list
	}
	return []any{value}
}

// offline refuses all requests: a Provider has its keys.
type offline struct{}

func (offline) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no request is made here")
}

// assumeWithToken decides a request to take a role with a token of an identity provider, by the trust policy of the role.
func (g *Guard) assumeWithToken(form url.Values) (time.Duration, func(aws.Credentials), string) {
	arn, name := form.Get("RoleArn"), form.Get("RoleSessionName")
	for field := range form {
		switch field {
		case "Action", "Version", "RoleArn", "RoleSessionName", "WebIdentityToken", "DurationSeconds":
		default:
			g.Report(fmt.Errorf("%s on %s: the effect of %s is not known here", byWebIdentity, arn, field))
			return 0, nil, "AccessDenied"
		}
	}
	life := time.Hour
	if text := form.Get("DurationSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if life = time.Duration(seconds) * time.Second; err != nil || life < 15*time.Minute || life > time.Hour {
			return 0, nil, "ValidationError"
		}
	}
	role, _ := get(g, g.roles, arn)
	g.mu.Lock()
	providers := make([]Provider, 0, len(g.providers))
	for _, p := range g.providers {
		providers = append(providers, p)
	}
	g.mu.Unlock()
	var trusts []oidc.Trust
	for _, p := range providers {
		of, err := p.trusts(g.Account, role.Trust)
		if err != nil {
			g.Report(fmt.Errorf("%s on %s: %w", byWebIdentity, arn, err))
			return 0, nil, "AccessDenied"
		}
		trusts = append(trusts, of...)
	}
	id, err := oidc.NewVerifier(offline{}, g.Now, oidc.Rules{}).Verify(context.Background(), form.Get("WebIdentityToken"), "", trusts)
	if err != nil {
		g.Report(&Denied{Principal: "the token of " + name + ": " + err.Error(), Action: byWebIdentity, Resource: arn})
		return 0, nil, "AccessDenied"
	}
	return life, func(c aws.Credentials) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.sessions[c.AccessKeyID] = session{role: role, name: name}
		g.assumed = append(g.assumed, Assumption{Role: arn, Session: name, AccessKeyID: c.AccessKeyID, Subject: id.Subject})
	}, ""
}
