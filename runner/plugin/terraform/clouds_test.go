package terraform_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/azurite"
	"github.com/fairlead/fairlead/tools/fakegcs"
	"github.com/fairlead/fairlead/tools/testserver"
)

// podToken is the pod's identity token; cloudToken is the access token that Google returns for it.
const (
	podToken   = "the pod's own token"
	cloudToken = "google-gives-it"
)

// The tenant of the Azure pod and the subscription of the storage account.
const (
	tenant       = "00000000-0000-0000-0000-000000000001"
	subscription = "00000000-0000-0000-0000-000000000002"
)

// clouds are the storages of other clouds, served under the host names of Google and Azure.
var clouds = []struct {
	name  string
	in    events.StateRef
	serve func(t *testing.T) map[string]http.Handler
	env   func(token string) []string // of a pod whose token is in the file token
}{
	{"gcs", events.StateRef{Storage: "gcs", In: &events.StateStore{Bucket: "acme-states", Prefix: "of/acme"}}, google, googlePod},
	{"azurerm, with the pod's identity", events.StateRef{Storage: "azurerm", In: &events.StateStore{Account: azurite.Account, Container: "states", Prefix: "of/acme"}}, azure, azurePod},
	{"azurerm, with the account's key", events.StateRef{Storage: "azurerm", In: &events.StateStore{Account: azurite.Account, Container: "states",
		ResourceGroup: "rg", Subscription: subscription}}, azure, azurePod},
}

// A component with its state in another cloud is planned, applied, planned again without changes and destroyed, with a
// pod's own identity. During the apply, another machine with the same plan is refused. Its error names the lock's holder
// and the command that releases the lock.
func TestStateInAnotherCloud(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: the clouds' servers are not built in a short run; make test-all runs it")
	}
	for _, c := range clouds {
		for name, tool := range tofu.Tools(t) {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				token := filepath.Join(dir, "token")
				if err := os.WriteFile(token, []byte(podToken), 0o600); err != nil {
					t.Fatal(err)
				}
				authority, proxy := hosts.Serve(t, c.serve(t))
				env := append(c.env(token), "PATH="+os.Getenv("PATH"), "SSL_CERT_FILE="+authority, "HTTPS_PROXY="+proxy)
				working, goOn := filepath.Join(dir, "working"), filepath.Join(dir, "go on")
				machine := func() *deployed {
					d := newDeployed(t, tool, "", map[string]string{"main.tf": fmt.Sprintf(`
resource "terraform_data" "x" {
  input = "one"
  provisioner "local-exec" {
    command = "touch '%s'; while [ ! -e '%s' ]; do sleep 0.05; done"
  }
}
output "name" { value = terraform_data.x.output }
`, working, goOn)}, nil)
					d.p = terraform.New(terraform.Config{Data: d.data, Tool: tool, Environ: env})
					d.spec.State = &events.StateRef{Storage: c.in.Storage, Key: "ins_1/web", In: c.in.In}
					return d
				}
				here, elsewhere := machine(), machine()
				plan, err := here.run(t, "plan", nil)
				if err != nil {
					t.Fatal(err)
				}
				elsewhere.spec = here.spec
				var applied plugin.Result
				done := make(chan struct{})
				go func() {
					defer close(done)
					applied, err = here.run(t, "apply", &plan)
				}()
				testserver.Until(t, "the start of the apply", func() bool {
					select {
					case <-done:
						return true
					default:
						_, missing := os.Stat(working)
						return missing == nil
					}
				})
				_, refused := elsewhere.run(t, "apply", &plan)
				if err := os.WriteFile(goOn, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				<-done
				if err != nil {
					t.Fatal(err)
				}
				if !applied.Mutated || string(applied.Outputs["name"].Value) != `"one"` {
					t.Errorf("applied: %+v", applied)
				}
				lockedBy(t, refused, here.spec.State.Unlock())
				elsewhere.expectNoChanges(t)
				elsewhere.tearDown(t)
				for _, d := range []*deployed{here, elsewhere} {
					if left, err := filepath.Glob(filepath.Join(d.data, "state", "*")); err != nil || len(left) > 0 {
						t.Errorf("states on the machine's disk: %s, %v", left, err)
					}
				}
			})
		}
	}
}

// lockedBy asserts that the error names this user, this machine and the command.
func lockedBy(t *testing.T, err error, unlock string) {
	t.Helper()
	me, failure := user.Current()
	if failure != nil {
		t.Fatal(failure)
	}
	machine, failure := os.Hostname()
	if failure != nil {
		t.Fatal(failure)
	}
	if plugin.ReasonOf(err) != fairlead.ReasonStateLocked {
		t.Fatalf("a second apply: %v", err)
	}
	for _, want := range []string{"the state is locked by " + me.Username + "@" + machine + " since 20", " for Apply, lock ", "`" + unlock + "` releases the lock"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("a second apply: %v\nwant %q", err, want)
		}
	}
}

// emulator forwards requests to a server and keeps their host name.
func emulator(t *testing.T, endpoint string) http.Handler {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	to := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the emulator runs on this machine
	t.Cleanup(to.CloseIdleConnections)
	return &httputil.ReverseProxy{Transport: to, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
}

// ask sends a request to a handler, and fails the test on an error status.
func sendRequest(t *testing.T, h http.Handler, method, at, body string, header ...string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI = ""
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := &recorded{header: http.Header{}}
	if h.ServeHTTP(answer, r); answer.status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, at, answer.status, answer.body.Bytes())
	}
}

// recorded records an answer.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(b []byte) (int, error) { return r.body.Write(b) }

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the tool may have closed the connection
}

// google serves a bucket, and the token service that trades a pod's token for an access token.
func google(t *testing.T) map[string]http.Handler {
	var server fakegcs.Server
	t.Cleanup(server.Stop)
	storage := emulator(t, server.Endpoint(t))
	sendRequest(t, storage, http.MethodPost, "https://storage.googleapis.com/storage/v1/b?project=acme", `{"name":"acme-states"}`, "Content-Type", "application/json")
	return map[string]http.Handler{
		"storage.googleapis.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+cloudToken {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			storage.ServeHTTP(w, r)
		}),
		"sts.googleapis.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/token" || r.PostFormValue("subject_token") != podToken {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			reply(w, map[string]any{"access_token": cloudToken, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3600})
		}),
	}
}

func googlePod(token string) []string {
	text := fmt.Sprintf(`{"type":"external_account","audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/acme/providers/cluster",
		"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.googleapis.com/v1/token","credential_source":{"file":%q}}`, token)
	path := token + ".json"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return []string{"GOOGLE_APPLICATION_CREDENTIALS=" + path}
}

// azure serves an account with a container, Entra ID, which trades a pod's token, and the resource manager, which returns
// the account's key.
func azure(t *testing.T) map[string]http.Handler {
	var server azurite.Server
	t.Cleanup(server.Stop)
	account := azurite.Account + ".blob.core.windows.net"
	storage := emulator(t, server.Endpoint(t))
	sendRequest(t, storage, http.MethodPut, "https://"+account+"/states?restype=container", "", "Authorization", "Bearer "+entraToken("https://storage.azure.com"), "X-Ms-Version", "2021-12-02")
	const issuer = "https://login.microsoftonline.com/" + tenant
	return map[string]http.Handler{
		account: storage,
		"login.microsoftonline.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/common/discovery/instance":
				reply(w, map[string]any{"tenant_discovery_endpoint": issuer + "/v2.0/.well-known/openid-configuration", "api-version": "1.1", "metadata": []any{map[string]any{
					"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net", "aliases": []string{"login.microsoftonline.com", "login.windows.net"}}}})
			case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
				reply(w, map[string]any{"issuer": issuer + "/v2.0", "authorization_endpoint": issuer + "/oauth2/v2.0/authorize", "token_endpoint": issuer + "/oauth2/v2.0/token"})
			case r.URL.Path == "/"+tenant+"/oauth2/v2.0/token" && r.PostFormValue("client_assertion") == podToken:
				scope, _, _ := strings.Cut(r.PostFormValue("scope"), " ")
				reply(w, map[string]any{"token_type": "Bearer", "expires_in": 3600, "ext_expires_in": 3600, "access_token": entraToken(strings.TrimSuffix(scope, "/.default"))})
			default:
				w.WriteHeader(http.StatusUnauthorized)
			}
		}),
		"management.azure.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			at := "/subscriptions/" + subscription + "/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/" + azurite.Account
			switch {
			case r.Header.Get("Authorization") == "":
				w.WriteHeader(http.StatusUnauthorized)
			case r.Method == http.MethodGet && r.URL.Path == at: // only Terraform requests it
				reply(w, map[string]any{"id": at, "name": azurite.Account, "kind": "StorageV2", "properties": map[string]any{"primaryEndpoints": map[string]any{"blob": "https://" + account + "/"}}})
			case r.Method == http.MethodPost && r.URL.Path == at+"/listKeys":
				reply(w, map[string]any{"keys": []any{map[string]any{"keyName": "key1", "value": azurite.Key(), "permissions": "FULL"}}})
			default:
				w.WriteHeader(http.StatusForbidden)
			}
		}),
	}
}

func azurePod(token string) []string {
	return []string{"AZURE_CLIENT_ID=00000000-0000-0000-0000-000000000003", "AZURE_TENANT_ID=" + tenant, "AZURE_FEDERATED_TOKEN_FILE=" + token}
}

// entraToken returns a token of the tenant for an audience, with a signature that no server verifies.
func entraToken(audience string) string {
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	now := time.Now().Unix()
	return part(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + part(map[string]any{"aud": audience, "iss": "https://sts.windows.net/" + tenant + "/",
		"iat": now - 60, "nbf": now - 60, "exp": now + 3600}) + "." + part("signature")
}
