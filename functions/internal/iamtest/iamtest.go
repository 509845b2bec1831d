// Package iamtest enforces IAM before servers that do not. A Guard is a proxy before each
// server of an account: it verifies the signature of a request, finds the session that the
// access key belongs to, derives actions, resources and condition keys from the request,
// and asks the IAM simulator. A request that IAM would deny gets the service's own answer.
// A request whose permissions the Guard cannot derive is refused and reported.
//
// The Guard serves STS itself, so it knows the policy and the tags of each session.
package iamtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/tools/iamsimulator"
)

// Policy is a policy in IAM's JSON, whose references are resolved.
type Policy = map[string]any

// Role is a role of the account.
type Role struct {
	ARN      string
	Trust    Policy
	Policies []Policy
	Boundary Policy // nil: none
}

// Options configure a Guard.
type Options struct {
	Account, Region string
	Now             func() time.Time
	Simulator       *iamsimulator.Simulator
	// Server is the URL of the server that has the account's resources. The Guard asks it for the
	// tags of a resource and for the boundary of a role, when a policy compares them.
	Server string
	// Report gets each refusal that is no wrong signature: a *Denied, or the reason why the
	// permissions of a request could not be derived. Called concurrently.
	Report func(error)
}

// Guard enforces the permissions of one account. Safe for concurrent use.
type Guard struct {
	Options
	sts *ststest.Server

	mu       sync.Mutex
	roles    map[string]Role    // by ARN
	policies map[string]Policy  // of resources, by ARN
	tables   map[string]Table   // by name
	buckets  map[string]string  // ARN of the key that encrypts a bucket, by the bucket's name
	secretOf map[string]string  // ARN of a secret of Secrets Manager, by its name
	sessions map[string]session // by access key
	decided  map[string]bool    // decisions, by question
	allowed  map[use]int
	assumed  []Assumption
	lives    map[string]time.Duration // of the sessions of a role, by its ARN; absent: what the caller asks for
	expired  map[string]bool          // sessions that Expire ended, by access key
	deleted  map[string]int           // how often a role was deleted, by its ARN

	providers map[string]Provider       // identity providers, by their issuer
	requests  map[string]map[string]int // that IAM allowed, by role and main action
	plain     map[string]struct{}       // names of parameters that no key encrypts
}

// use is an action of a session of a role.
type use struct{ role, session, action string }

// session is a session of a role.
type session struct {
	role   Role
	name   string
	policy Policy // nil: none
	tags   map[string]string
}

// Table is what the Guard must know of a table of DynamoDB.
type Table struct {
	PartitionKey string // name of the attribute
	Key          string // ARN of the key that encrypts the table; "": AWS's own
}

// Assumption is a session that STS opened for a caller.
type Assumption struct {
	Role, Session, AccessKeyID string
	Subject                    string // of the token of an identity provider by which the caller took the role; "": the caller is a principal of AWS
}

// New returns the Guard of an account that has no roles.
func New(o Options) *Guard {
	g := &Guard{Options: o, sts: ststest.New(o.Now), roles: map[string]Role{}, policies: map[string]Policy{}, tables: map[string]Table{}, buckets: map[string]string{}, secretOf: map[string]string{},
		sessions: map[string]session{}, decided: map[string]bool{}, allowed: map[use]int{}, lives: map[string]time.Duration{}, expired: map[string]bool{},
		deleted: map[string]int{}, providers: map[string]Provider{}, plain: map[string]struct{}{}, requests: map[string]map[string]int{}}
	g.sts.LetCallersAssume(g.assume)
	g.sts.LetTokensAssume(g.assumeWithToken)
	return g
}

// STS serves the API of STS.
func (g *Guard) STS() http.Handler { return g.sts }

// AddRole adds a role or replaces it. Sessions that are open keep the previous permissions.
func (g *Guard) AddRole(r Role) { add(g, g.roles, r.ARN, r) }

// DeleteRole deletes a role, by its ARN. No request of its sessions is allowed any more. If a
// role with this ARN is added again, it has another unique id.
func (g *Guard) DeleteRole(arn string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.roles, arn)
	g.deleted[arn]++
	maps.DeleteFunc(g.sessions, func(_ string, s session) bool { return s.role.ARN == arn })
}

// AddPolicy adds the policy of a bucket, a key, a queue or a repository.
func (g *Guard) AddPolicy(arn string, p Policy) { add(g, g.policies, arn, p) }

// AddTable adds a table of DynamoDB.
func (g *Guard) AddTable(name string, t Table) { add(g, g.tables, name, t) }

// AddBucket adds a bucket, with the ARN of the key that encrypts it; "": S3's own.
func (g *Guard) AddBucket(name, key string) { add(g, g.buckets, name, key) }

// AddSecret adds a secret of Secrets Manager, which requests can name without its ARN. It is encrypted by Secrets Manager's own key.
func (g *Guard) AddSecret(name, arn string) { add(g, g.secretOf, name, arn) }

// Shorten makes STS answer that later sessions of the role, an ARN, expire after life, whatever
// their callers ask for. So a caller renews its session in a test as it does after most of an hour.
func (g *Guard) Shorten(role string, life time.Duration) { add(g, g.lives, role, life) }

// Expire ends sessions, by their access keys, as if their time had passed.
func (g *Guard) Expire(accessKeyIDs ...string) {
	for _, key := range accessKeyIDs {
		add(g, g.expired, key, true)
	}
}

func add[V any](g *Guard, to map[string]V, key string, v V) {
	g.mu.Lock()
	defer g.mu.Unlock()
	to[key] = v
}

func get[V any](g *Guard, from map[string]V, key string) (V, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := from[key]
	return v, ok
}

// Open returns credentials of a session that a service of AWS opens, such as Lambda for a
// function ("lambda.amazonaws.com"). The role's trust policy must name the service. They do
// not expire, because the service renews them.
func (g *Guard) Open(service, role, name string) (aws.Credentials, error) {
	r, _ := get(g, g.roles, role)
	trust, err := json.Marshal(r.Trust)
	if err != nil {
		return aws.Credentials{}, err
	}
	if !bytes.Contains(trust, []byte(`"Service":"`+service+`"`)) {
		return aws.Credentials{}, fmt.Errorf("the role %s does not trust %s", role, service)
	}
	return g.Give(role, name)
}

// Give returns credentials of a session whose opening is not part of the test, such as a
// person's.
func (g *Guard) Give(role, name string) (aws.Credentials, error) {
	r, ok := get(g, g.roles, role)
	if !ok {
		return aws.Credentials{}, fmt.Errorf("the role %s does not exist", role)
	}
	before, _ := get(g, g.deleted, role)
	id := sha256.Sum256([]byte(role + strings.Repeat(" again", before)))
	c := g.sts.AssumeRole("aws", g.Account, role[strings.LastIndex(role, "/")+1:], "AROA"+strings.ToUpper(hex.EncodeToString(id[:]))[:17], name)
	add(g, g.sessions, c.AccessKeyID, session{role: r, name: name})
	return c, nil
}

// Assumed returns the sessions that callers opened, oldest first.
func (g *Guard) Assumed() []Assumption {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.assumed)
}

// Call is one permission that a request needs.
type Call struct {
	Action, Resource string
	Context          map[string]any // condition keys of the request
	// Existing: IAM compares the tags that the resource has before the request. Without it
	// aws:ResourceTag is absent, so a denial of what lacks a tag holds.
	Existing bool
}

// Denied reports a call that IAM denies.
type Denied struct{ Principal, Action, Resource string }

func (d *Denied) Error() string {
	return "User: " + d.Principal + " is not authorized to perform: " + d.Action + " on resource: " + d.Resource
}

// underivable is the value of a condition key that the Guard cannot derive from the request.
type underivable struct{}

// Authorize returns nil if the session of the access key may make all calls, and a
// *Denied for the first that it may not make. Another error is reported and means that
// there is no decision.
func (g *Guard) Authorize(accessKeyID string, calls ...Call) error {
	s, ok := get(g, g.sessions, accessKeyID)
	if !ok {
		return fmt.Errorf("the access key %s belongs to no session", accessKeyID)
	}
	if now, ok := get(g, g.roles, s.role.ARN); ok { // a change of a role counts for its open sessions
		s.role = now
	}
	for _, c := range calls {
		allowed, err := g.decide(s, c)
		if err == nil && !allowed {
			err = &Denied{Principal: "arn:aws:sts::" + g.Account + ":assumed-role/" + s.role.ARN[strings.LastIndex(s.role.ARN, "/")+1:] + "/" + s.name, Action: c.Action, Resource: c.Resource}
		}
		if err != nil {
			g.Report(err)
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range calls {
		g.allowed[use{s.role.ARN, s.name, c.Action}]++
		if i == 0 {
			if g.requests[s.role.ARN] == nil {
				g.requests[s.role.ARN] = map[string]int{}
			}
			g.requests[s.role.ARN][c.Action]++
		}
	}
	return nil
}

// Uses returns how often sessions of the role, an ARN, used an action that IAM allowed.
func (g *Guard) Uses(role, action string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for u, count := range g.allowed {
		if u.role == role && u.action == action {
			n += count
		}
	}
	return n
}

// Requests returns how many requests sessions of the role, an ARN, sent that IAM allowed, by their main action. A request can need
// further actions: one to a bucket with a key needs those of the key.
func (g *Guard) Requests(role string) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.requests[role])
}

// UsesOf returns how often the sessions of the role with this name used an action that IAM allowed.
func (g *Guard) UsesOf(role, session, action string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allowed[use{role, session, action}]
}

// Actions returns how often sessions of the role, an ARN, used each action that IAM allowed.
func (g *Guard) Actions(role string) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]int{}
	for u, n := range g.allowed {
		if u.role == role {
			out[u.action] += n
		}
	}
	return out
}

// decide asks the simulator, once for each question. A question has only the condition keys
// that a policy names, because no other key changes the answer.
func (g *Guard) decide(s session, c Call) (bool, error) {
	q := iamsimulator.Question{Principal: s.role.ARN, Action: c.Action, Resource: c.Resource, Account: g.Account,
		Identity: s.role.Policies, Boundary: s.role.Boundary, Session: s.policy, ResourceP: g.policyOf(c)}
	text, err := json.Marshal([]any{q.Identity, q.Boundary, q.Session, q.ResourceP})
	if err != nil {
		return false, err
	}
	named := strings.ToLower(string(text))
	context := maps.Clone(c.Context)
	if context == nil {
		context = map[string]any{}
	}
	for k, v := range s.tags {
		context["aws:PrincipalTag/"+k] = v
	}
	if c.Existing && strings.Contains(named, "aws:resourcetag/") {
		tags, err := g.Tags(c.Resource)
		if err != nil {
			return false, fmt.Errorf("%s on %s: %w", c.Action, c.Resource, err)
		}
		for k, v := range tags {
			context["aws:ResourceTag/"+k] = v
		}
	}
	maps.DeleteFunc(context, func(key string, _ any) bool { return !strings.Contains(named, strings.ToLower(key)) })
	for key, v := range context {
		if v == (underivable{}) {
			return false, fmt.Errorf("%s on %s: a policy of %s names %s, which cannot be derived from the request", c.Action, c.Resource, s.role.ARN, key)
		}
	}
	q.Context = context
	id, err := json.Marshal(q)
	if err != nil {
		return false, err
	}
	if allowed, known := get(g, g.decided, string(id)); known {
		return allowed, nil
	}
	answer, err := g.Simulator.Ask([]iamsimulator.Question{q})
	if err != nil {
		return false, err
	}
	add(g, g.decided, string(id), answer[0])
	return answer[0], nil
}

// policyOf returns the policy of a resource, and for an object that of its bucket. STS
// uses the trust policy of a role.
func (g *Guard) policyOf(c Call) Policy {
	arn := c.Resource
	if strings.HasPrefix(c.Action, "sts:") {
		r, _ := get(g, g.roles, arn)
		return r.Trust
	}
	if strings.HasPrefix(arn, "arn:aws:s3:::") {
		arn, _, _ = strings.Cut(arn, "/")
	}
	p, _ := get(g, g.policies, arn)
	return p
}

// assume decides a request to assume a role, by the policies of the caller and the trust
// policy of the role.
func (g *Guard) assume(caller string, form url.Values) (time.Duration, func(aws.Credentials), string) {
	const denied = "AccessDenied"
	arn, name := form.Get("RoleArn"), form.Get("RoleSessionName")
	role, ok := get(g, g.roles, arn)
	if !ok {
		g.Report(&Denied{Principal: caller, Action: "sts:AssumeRole", Resource: arn})
		return 0, nil, denied
	}
	s := session{role: role, name: name, tags: map[string]string{}}
	context := map[string]any{"sts:RoleSessionName": name}
	var keys []any
	for field := range form {
		value := form.Get(field)
		switch {
		case strings.HasPrefix(field, "Tags.member.") && strings.HasSuffix(field, ".Key"):
			tag := form.Get(strings.TrimSuffix(field, "Key") + "Value")
			s.tags[value] = tag
			context["aws:RequestTag/"+value], keys = tag, append(keys, value)
		case strings.HasPrefix(field, "Tags.member.") && strings.HasSuffix(field, ".Value"):
		case field == "ExternalId":
			context["sts:ExternalId"] = value
		case field == "Policy":
			if len(value) > 2048 || json.Unmarshal([]byte(value), &s.policy) != nil {
				return 0, nil, "MalformedPolicyDocument"
			}
		case !slices.Contains([]string{"Action", "Version", "RoleArn", "RoleSessionName", "DurationSeconds"}, field):
			g.Report(fmt.Errorf("sts:AssumeRole on %s: the effect of %s is not known here", arn, field))
			return 0, nil, denied
		}
	}
	life := time.Hour
	if text := form.Get("DurationSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if life = time.Duration(seconds) * time.Second; err != nil || life < 15*time.Minute || life > time.Hour {
			return 0, nil, "ValidationError"
		}
	}
	if short, ok := get(g, g.lives, arn); ok {
		life = short
	}
	calls := []Call{{Action: "sts:AssumeRole", Resource: arn, Context: context}}
	if len(keys) > 0 {
		context["aws:TagKeys"] = keys
		calls = append(calls, Call{Action: "sts:TagSession", Resource: arn, Context: context})
	}
	if err := g.Authorize(caller, calls...); err != nil {
		return 0, nil, denied
	}
	return life, func(c aws.Credentials) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.sessions[c.AccessKeyID] = s
		g.assumed = append(g.assumed, Assumption{Role: arn, Session: name, AccessKeyID: c.AccessKeyID})
	}, ""
}
