package terraform

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/test/tofu"
)

// configurations has each kind of state storage, and how `init` ends without a server that keeps states. A tool reports a
// wrong setting before it sends any request.
var configurations = []struct {
	name  string
	ref   events.StateRef
	what  bool
	want  string   // the file that sets the backend
	env   []string // for init
	fails string   // a pattern of the error of init; "": init succeeds
}{
	{name: "local: through the workspace's link", what: forState, ref: events.StateRef{Storage: "local", Key: "ins_1/web"},
		want: `{"local":{"path":"../state/terraform.tfstate"}}`},
	{name: "http: addresses and credentials in the environment", what: forState, ref: events.StateRef{Storage: "http", Key: "ins_1/web", Path: "/runner/v1/state/ins_1/web"},
		want: `{"http":{}}`, env: []string{"TF_HTTP_ADDRESS=http://{nothing}/state"}},
	{name: "s3: locked beside the state", what: forState, ref: events.StateRef{Storage: "s3", Key: "ins_1/web", In: &events.StateStore{Bucket: "acme-states", Region: "eu-central-1"}},
		want: `{"s3":{"bucket":"acme-states","key":"state/ins_1/web.tfstate","region":"eu-central-1","skip_credentials_validation":true,"skip_region_validation":true,"skip_requesting_account_id":true,"use_lockfile":true}}`,
		env:  []string{"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x", "AWS_ENDPOINT_URL_S3=http://{nothing}"}, fails: `does not exist|404|no such host`},
	{name: "s3 with a prefix, a key and another server", what: forState, ref: events.StateRef{Storage: "s3", Key: "ins_1/web",
		In: &events.StateStore{Bucket: "b", Region: "eu-central-1", Prefix: "of/acme", KMSKey: "alias/states", Endpoint: "http://minio.example"}},
		want: `{"s3":{"bucket":"b","encrypt":true,"endpoints":{"s3":"http://minio.example"},"key":"of/acme/state/ins_1/web.tfstate","kms_key_id":"alias/states","region":"eu-central-1","skip_credentials_validation":true,"skip_region_validation":true,"skip_requesting_account_id":true,"skip_s3_checksum":true,"use_lockfile":true,"use_path_style":true}}`,
		env:  []string{"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x", "HTTP_PROXY=http://{nothing}"}, fails: `does not exist|404|no such host`},
	{name: "s3, a saved plan: no lock", what: forPlan, ref: events.StateRef{Storage: "s3", Key: "ins_1/web", In: &events.StateStore{Bucket: "acme-states", Region: "eu-central-1"}},
		want: `{"s3":{"bucket":"acme-states","key":"plans/ins_1/web.tfstate","region":"eu-central-1","skip_credentials_validation":true,"skip_region_validation":true,"skip_requesting_account_id":true}}`,
		env:  []string{"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x", "AWS_ENDPOINT_URL_S3=http://{nothing}"}, fails: `does not exist|404|no such host`},
	{name: "gcs", what: forState, ref: events.StateRef{Storage: "gcs", Key: "ins_1/web", In: &events.StateStore{Bucket: "acme-states", Prefix: "p", KMSKey: "projects/p/locations/l/keyRings/r/cryptoKeys/k"}},
		want: `{"gcs":{"bucket":"acme-states","kms_encryption_key":"projects/p/locations/l/keyRings/r/cryptoKeys/k","prefix":"p/state/ins_1/web"}}`,
		env:  []string{"STORAGE_EMULATOR_HOST={nothing}"}, fails: `bucket doesn't exist|404`},
	{name: "azurerm, with the job's identity", what: forState, ref: events.StateRef{Storage: "azurerm", Key: "ins_1/web", In: &events.StateStore{Account: "acmestates", Container: "states"}},
		want: `{"azurerm":{"container_name":"states","key":"state/ins_1/web.tfstate","storage_account_name":"acmestates","use_azuread_auth":true}}`,
		env:  []string{"ARM_TENANT_ID=00000000-0000-0000-0000-000000000001", "HTTPS_PROXY=http://127.0.0.1:1", "ARM_USE_CLI=false"}, fails: `No valid azure auth methods|unable to build authorizer`},
	{name: "azurerm, with the account's key", what: forState, ref: events.StateRef{Storage: "azurerm", Key: "ins_1/web",
		In: &events.StateStore{Account: "acmestates", Container: "states", ResourceGroup: "rg", Subscription: "00000000-0000-0000-0000-000000000002"}},
		want: `{"azurerm":{"container_name":"states","key":"state/ins_1/web.tfstate","resource_group_name":"rg","storage_account_name":"acmestates","subscription_id":"00000000-0000-0000-0000-000000000002"}}`,
		env:  []string{"ARM_TENANT_ID=00000000-0000-0000-0000-000000000001", "HTTPS_PROXY=http://127.0.0.1:1", "ARM_USE_CLI=false"}, fails: `No valid azure auth methods|unable to build authorizer`},
	{name: "kubernetes", what: forState, ref: events.StateRef{Storage: "kubernetes", Key: "ins_1/web", In: &events.StateStore{Namespace: "fairlead"}},
		want:  `{"kubernetes":{"namespace":"fairlead","secret_suffix":"ins-1-web-ca7b1fad-state"}}`,
		fails: `kubernetes configuration`},
}

// Each kind of storage becomes one file, and a real tool accepts the file.
func TestToolAcceptsTheBackendOfEachStorage(t *testing.T) {
	tools := tofu.Tools(t)
	nothing := httptest.NewServer(http.NotFoundHandler())
	defer nothing.Close()
	for _, c := range configurations {
		t.Run(c.name, func(t *testing.T) {
			b, err := backendOf(c.ref, c.what)
			if err != nil {
				t.Fatal(err)
			}
			file, err := b.file()
			if err != nil {
				t.Fatal(err)
			}
			if got := string(file); got != `{"terraform":{"backend":`+c.want+`}}` {
				t.Errorf("got the file\n%s\nwant the backend\n%s", got, c.want)
			}
			for name, tool := range tools {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, overrideFile), file, 0o600); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, tool, "init", "-input=false", "-no-color")
				cmd.Dir = dir
				cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CHECKPOINT_DISABLE=1", "AWS_EC2_METADATA_DISABLED=true"}, c.env...)
				for i, v := range cmd.Env {
					cmd.Env[i] = strings.Replace(v, "{nothing}", nothing.Listener.Addr().String(), 1)
				}
				out, err := cmd.CombinedOutput()
				flat := strings.Join(strings.Fields(string(out)), " ")
				switch {
				case c.fails == "" && err != nil:
					t.Errorf("%s: %v\n%s", name, err, out)
				case c.fails != "" && (err == nil || !regexp.MustCompile(c.fails).MatchString(flat)):
					t.Errorf("%s: %v, want an error that matches %s\n%s", name, err, c.fails, out)
				}
				for _, wrong := range []string{"Unsupported argument", "Invalid backend configuration", "Missing required", "Extraneous JSON", "Incorrect attribute", "deprecated"} {
					if strings.Contains(flat, wrong) {
						t.Errorf("%s reports a wrong setting:\n%s", name, out)
					}
				}
			}
		})
	}
}

func TestInvalidStateReferenceIsRefused(t *testing.T) {
	for name, ref := range map[string]events.StateRef{
		"a kind of a later runner":       {Storage: "tape", Key: "ins_1/web"},
		"a key that leaves its folder":   {Storage: "s3", Key: "../web", In: &events.StateStore{Bucket: "b", Region: "r"}},
		"a key of three parts":           {Storage: "s3", Key: "a/b/c", In: &events.StateStore{Bucket: "b", Region: "r"}},
		"s3 without anything":            {Storage: "s3", Key: "ins_1/web"},
		"s3 without a region":            {Storage: "s3", Key: "ins_1/web", In: &events.StateStore{Bucket: "b"}},
		"gcs without a bucket":           {Storage: "gcs", Key: "ins_1/web", In: &events.StateStore{}},
		"azurerm without a container":    {Storage: "azurerm", Key: "ins_1/web", In: &events.StateStore{Account: "a"}},
		"kubernetes without a namespace": {Storage: "kubernetes", Key: "ins_1/web", In: &events.StateStore{}},
		"only settings of another kind":  {Storage: "kubernetes", Key: "ins_1/web", In: &events.StateStore{Bucket: "b"}},
	} {
		if b, err := backendOf(ref, forState); plugin.ReasonOf(err) != fairlead.ReasonSpecInvalid {
			t.Errorf("%s: backend %v, error %v; want spec-invalid", name, b, err)
		}
	}
}

// The runner passes on only variables that lead to an identity. The operator passes on credentials explicitly.
func TestIdentityVariablesHoldNoCredential(t *testing.T) {
	given := map[string]string{"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "secret", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN": "secret", "AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "secret", "AZURE_FEDERATED_TOKEN_FILE": "/var/run/token",
		"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBE_TOKEN": "secret", "GOOGLE_APPLICATION_CREDENTIALS": "/var/run/gcp.json", "GOOGLE_CREDENTIALS": "secret"}
	for kind, want := range map[string]string{
		"local": `{}`, "http": `{}`,
		"s3":         `{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI":"/v2/x"}`,
		"gcs":        `{"GOOGLE_APPLICATION_CREDENTIALS":"/var/run/gcp.json"}`,
		"azurerm":    `{"ARM_CLIENT_ID":"c","ARM_TENANT_ID":"t","ARM_USE_AKS_WORKLOAD_IDENTITY":"true","AZURE_CLIENT_ID":"c","AZURE_FEDERATED_TOKEN_FILE":"/var/run/token","AZURE_TENANT_ID":"t"}`,
		"kubernetes": `{"KUBERNETES_SERVICE_HOST":"10.0.0.1","KUBERNETES_SERVICE_PORT":"443","KUBE_IN_CLUSTER_CONFIG":"true"}`,
	} {
		if b, err := json.Marshal(identity(kind, given, nil)); err != nil || string(b) != want {
			t.Errorf("%s: %s, want %s", kind, b, want)
		}
	}
	for kind, chosen := range map[string]map[string]string{"s3": {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/mine"}, "kubernetes": {"KUBE_CONFIG_PATH": "/mine", "KUBERNETES_SERVICE_HOST": "x", "KUBERNETES_SERVICE_PORT": "1"}} {
		if got := identity(kind, given, chosen); len(got) != 0 {
			t.Errorf("%s: the job's own setting is overridden by %v", kind, got)
		}
	}
}
