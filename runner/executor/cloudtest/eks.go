package cloudtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// tokenLife is how long EKS accepts a token.
const tokenLife = 15 * time.Minute

// EKS simulates Amazon EKS in one region with the API server of one cluster. moto stores the clusters, but gives them
// unreachable addresses; EKS replaces the address of this cluster. Like EKS's authenticator, the API server learns the
// owner of a token by sending the presigned request in it to STS.
type EKS struct {
	*Front
	region, cluster string
	sts             http.Handler
	moto            *httputil.ReverseProxy
	now             func() time.Time

	mu        sync.Mutex
	entries   map[string]string // access entries: ARN of the role to user
	status    string            // "": moto's status
	refuse    string            // error code; "": no error
	described int
}

// NewEKS returns an EKS in the region, in front of the moto at the URL moto, with an API server for the cluster. The test
// creates the cluster in moto.
func NewEKS(t testing.TB, region, cluster, moto string, sts http.Handler, now func() time.Time, api API) *EKS {
	at, err := url.Parse(moto)
	if err != nil {
		t.Fatal(err)
	}
	e := &EKS{region: region, cluster: cluster, sts: sts, now: now, entries: map[string]string{}}
	e.moto = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }, ModifyResponse: e.amend} // moto reads service and region from the credential's scope
	e.Front = newFront(t, api, e.Authenticate)
	return e
}

// Hosts returns AWS's hosts in the region, and EKS's hosts in other regions.
func (e *EKS) Hosts(others ...string) Hosts {
	h := Hosts{"sts." + e.region + ".amazonaws.com": e.sts}
	for _, region := range append(others, e.region) {
		h["eks."+region+".amazonaws.com"] = http.HandlerFunc(e.describe)
	}
	return h
}

// AddAccessEntry makes a role a user of the cluster.
func (e *EKS) AddAccessEntry(role, user string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.entries[role] = user
}

// Set sets the status of the cluster ("": the status that moto returns), and the error code with which EKS refuses all
// requests ("": none).
func (e *EKS) Set(status, refuse string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.refuse = status, refuse
}

// Recreate starts another API server for the cluster and stops the old one, as if the cluster was created again with the same
// name.
func (e *EKS) Recreate(t testing.TB) {
	old := e.Front
	e.Front = newFront(t, old.api, e.Authenticate)
	old.server.Close()
}

// Described returns the number of cluster descriptions.
func (e *EKS) Described() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.described
}

func (e *EKS) describe(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	refuse := e.refuse
	if r.Method == http.MethodGet {
		e.described++
	}
	e.mu.Unlock()
	if refuse != "" {
		w.Header().Set("X-Amzn-Errortype", refuse)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message":"refused"}`)
		return
	}
	e.moto.ServeHTTP(w, r)
}

// amend sets the cluster's address in a description.
func (e *EKS) amend(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	var answer map[string]map[string]any
	err := json.NewDecoder(resp.Body).Decode(&answer)
	resp.Body.Close()
	if err != nil || answer["cluster"] == nil {
		return fmt.Errorf("moto's answer has no cluster: %w", err)
	}
	c := answer["cluster"]
	c["endpoint"] = e.URL()
	c["certificateAuthority"] = map[string]string{"data": base64.StdEncoding.EncodeToString(e.Authority())}
	e.mu.Lock()
	if e.status != "" {
		c["status"] = e.status
	}
	e.mu.Unlock()
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

// Authenticate returns the user of a token, as EKS's authenticator does. It trusts only STS's answer. It refuses a request
// that is not a GetCallerIdentity or that was not signed for this cluster.
func (e *EKS) Authenticate(token string) (string, error) {
	encoded, ok := strings.CutPrefix(token, "k8s-aws-v1.")
	if !ok || len(token) > 4<<10 {
		return "", errors.New("not a token of EKS")
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(string(text))
	if err != nil {
		return "", err
	}
	if u.Scheme != "https" || u.Host != "sts."+e.region+".amazonaws.com" || u.Path != "/" || u.User != nil || u.Fragment != "" {
		return "", fmt.Errorf("the token's request goes to %s", u.Redacted())
	}
	if err := e.checkQuery(u.Query()); err != nil {
		return "", err
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("x-k8s-aws-id", e.cluster)
	req.Header.Set("Accept", "application/json")
	resp, err := e.Hosts().RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var identity struct {
		GetCallerIdentityResponse struct {
			GetCallerIdentityResult struct{ Arn string }
		}
	}
	if err := json.Unmarshal(body, &identity); resp.StatusCode != http.StatusOK || err != nil {
		return "", fmt.Errorf("STS answered %d, %s", resp.StatusCode, body)
	}
	role := roleOf(identity.GetCallerIdentityResponse.GetCallerIdentityResult.Arn)
	e.mu.Lock()
	defer e.mu.Unlock()
	user, ok := e.entries[role]
	if !ok {
		return "", fmt.Errorf("no access entry for %s", role)
	}
	return user, nil
}

// checkQuery returns an error unless the token's request is a GetCallerIdentity with only known parameters, signed for this
// cluster and not expired.
func (e *EKS) checkQuery(q url.Values) error {
	known := strings.Fields("action version x-amz-algorithm x-amz-credential x-amz-date x-amz-expires x-amz-security-token x-amz-signature x-amz-signedheaders")
	for name, values := range q {
		if len(values) != 1 || !slices.Contains(known, strings.ToLower(name)) {
			return fmt.Errorf("the token has the parameter %s, %d times", name, len(values))
		}
	}
	if q.Get("Action") != "GetCallerIdentity" {
		return fmt.Errorf("the token's request has the action %s", q.Get("Action"))
	}
	signed := strings.Split(q.Get("X-Amz-SignedHeaders"), ";")
	if !slices.Contains(signed, "x-k8s-aws-id") || !slices.Contains(signed, "host") {
		return fmt.Errorf("the token's signature covers only %s", signed)
	}
	if n, err := strconv.Atoi(q.Get("X-Amz-Expires")); err != nil || n < 0 || n > int(tokenLife/time.Second) {
		return fmt.Errorf("the token expires after %q s", q.Get("X-Amz-Expires"))
	}
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if age := e.now().Sub(at); err != nil || age >= tokenLife || age < -tokenLife {
		return fmt.Errorf("the token is %s old, %v", age, err)
	}
	return nil
}

// roleOf returns the ARN of a session's role, without the role's path.
func roleOf(arn string) string {
	part := strings.SplitN(arn, ":", 6)
	if len(part) != 6 {
		return arn
	}
	name := strings.Split(part[5], "/")
	if part[2] != "sts" || len(name) != 3 || name[0] != "assumed-role" {
		return arn
	}
	return "arn:" + part[1] + ":iam::" + part[4] + ":role/" + name[1]
}
