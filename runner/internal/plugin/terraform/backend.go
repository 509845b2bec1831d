package terraform

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/internal/plugin"
)

// The kinds of state storage, as events.StateRef documents them. Each is the
// name of the tools' backend as well.
const (
	storageLocal      = "local"
	storageHTTP       = "http"
	storageS3         = "s3"
	storageGCS        = "gcs"
	storageAzure      = "azurerm"
	storageKubernetes = "kubernetes"
)

// localPath is where the tool finds a state in local storage: through a link of
// the workspace, so that it is the same for all components.
const localPath = "../state/terraform.tfstate"

// What a key is of. A saved plan lies beside the state, in a place of its own:
// there is one for each component, as one plan of it can be applied.
const (
	ofState = "state"
	ofPlan  = "plan"
)

// backend is what a backend is told in its configuration. Credentials are not
// among it: they reach the tool through its environment.
type backend struct {
	kind   string
	config map[string]any
}

// file is the content of the file that sets the backend.
func (b backend) file() ([]byte, error) {
	return json.Marshal(map[string]any{"terraform": map[string]any{"backend": map[string]any{b.kind: b.config}}})
}

// backendOf says how the tools reach the state, or the saved plan, of a key. It
// is pure: the same reference gives the same file, with either tool, on any
// runner.
func backendOf(ref events.StateRef, what string) (backend, error) {
	if !isKey(ref.Key) {
		return backend{}, plugin.Errorf(ReasonSpecInvalid, "the job spec's state key %q is not <install>/<component>", ref.Key)
	}
	in := events.StateStore{}
	if ref.In != nil {
		in = *ref.In
	}
	b := backend{kind: ref.Storage, config: map[string]any{}}
	object := path.Join(in.Prefix, map[string]string{ofState: "state", ofPlan: "plans"}[what], ref.Key)
	need := map[string]string{}
	switch ref.Storage {
	case storageLocal:
		b.config["path"] = localPath
	case storageHTTP: // all of it is of this job, and in the environment
	case storageS3:
		need["bucket"], need["region"] = in.Bucket, in.Region
		b.config = map[string]any{
			"bucket": in.Bucket, "key": object + ".tfstate", "region": in.Region,
			// The first request says what these ask for beforehand, and the pattern
			// of regions that the tools know is older than some regions.
			"skip_credentials_validation": true, "skip_requesting_account_id": true, "skip_region_validation": true,
		}
		if what == ofState {
			b.config["use_lockfile"] = true // a conditional write beside the state, so nothing else is needed to lock
		}
		if in.KMSKey != "" {
			// Without it the bucket's own encryption is what counts: to ask for any
			// would be to ask for another key than the bucket's.
			b.config["encrypt"], b.config["kms_key_id"] = true, in.KMSKey
		}
		if in.Endpoint != "" {
			b.config["endpoints"] = map[string]any{"s3": in.Endpoint}
			// Few servers besides AWS have a name for each bucket, or the checksums
			// that AWS's SDK has begun to send.
			b.config["use_path_style"], b.config["skip_s3_checksum"] = true, true
		}
	case storageGCS:
		need["bucket"] = in.Bucket
		b.config["bucket"], b.config["prefix"] = in.Bucket, object // of default.tfstate and default.tflock
		if in.KMSKey != "" {
			b.config["kms_encryption_key"] = in.KMSKey
		}
	case storageAzure:
		need["storage account"], need["container"] = in.Account, in.Container
		b.config["storage_account_name"], b.config["container_name"], b.config["key"] = in.Account, in.Container, object+".tfstate"
		if in.ResourceGroup != "" {
			b.config["resource_group_name"] = in.ResourceGroup
		}
		if in.Subscription != "" {
			b.config["subscription_id"] = in.Subscription
		}
		if in.ResourceGroup == "" {
			b.config["use_azuread_auth"] = true // else the account's key is looked up, in its resource group
		}
	case storageKubernetes:
		need["namespace"] = in.Namespace
		b.config["namespace"], b.config["secret_suffix"] = in.Namespace, secretSuffix(ref.Key, what)
	default:
		return backend{}, plugin.Errorf(ReasonSpecInvalid, "the job spec keeps its state in %q; this runner knows local, http, s3, gcs, azurerm and kubernetes", ref.Storage)
	}
	for name, value := range need {
		if value == "" {
			return backend{}, plugin.Errorf(ReasonSpecInvalid, "the job spec keeps its state in %s, and names no %s", ref.Storage, name)
		}
	}
	return b, nil
}

// maxSuffix is the longest end of a Secret's name: the tools make a label of
// it, which has 63 characters at most.
const maxSuffix = 63

// secretSuffix makes the end of a Secret's name from a key, for which it is
// unique. It does not end with a number, which Terraform refuses: it counts the
// parts of large states there.
func secretSuffix(key, what string) string {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(key))
	sum := sha256.Sum256([]byte(key))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-" + what
	return strings.TrimRight(name[:min(len(name), maxSuffix-len(tail))], "-") + tail
}

// where names the state for a person: what to look for, in whose words.
func (b backend) where() string {
	text := func(name string) string { s, _ := b.config[name].(string); return s }
	switch b.kind {
	case storageS3:
		return fmt.Sprintf("s3://%s/%s", text("bucket"), text("key"))
	case storageGCS:
		return fmt.Sprintf("gs://%s/%s/default.tfstate", text("bucket"), text("prefix"))
	case storageAzure:
		return fmt.Sprintf("the blob %s in container %s of account %s", text("key"), text("container_name"), text("storage_account_name"))
	case storageKubernetes:
		return fmt.Sprintf("the Secret tfstate-default-%s in namespace %s", text("secret_suffix"), text("namespace"))
	}
	return ""
}

// unlock is the command with which a person takes a lock off that a dead tool
// has left; "" where there is no need of one.
func (b backend) unlock() string {
	text := func(name string) string { s, _ := b.config[name].(string); return s }
	switch b.kind {
	case storageS3:
		command := fmt.Sprintf("aws s3 rm s3://%s/%s.tflock", text("bucket"), text("key"))
		if e, ok := b.config["endpoints"].(map[string]any); ok {
			command += fmt.Sprintf(" --endpoint-url %s", e["s3"])
		}
		return command
	case storageGCS:
		return fmt.Sprintf("gcloud storage rm gs://%s/%s/default.tflock", text("bucket"), text("prefix"))
	case storageAzure:
		return fmt.Sprintf("az storage blob lease break --account-name %s --container-name %s --blob-name %s --auth-mode login", text("storage_account_name"), text("container_name"), text("key"))
	case storageKubernetes:
		return fmt.Sprintf("kubectl delete lease lock-tfstate-default-%s --namespace %s", text("secret_suffix"), text("namespace"))
	}
	return ""
}

// leads are the variables by which a tool finds the identity of where it runs:
// the task's role, the pod's service account. They name files and addresses and
// hold no credential. What does (an access key, say) a tool has if the operator
// passes it on, or if the step takes a role for it.
func leads(kind string) []string {
	switch kind {
	case storageS3:
		return []string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
			"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_CA_BUNDLE"}
	case storageGCS:
		return []string{"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"}
	case storageAzure:
		return []string{"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"}
	case storageKubernetes:
		return []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
	}
	return nil
}

// identity completes what leads to an identity with what has the backend use it.
// given is the environment of the step.
func identity(kind string, given map[string]string) map[string]string {
	env := map[string]string{}
	for _, name := range leads(kind) {
		if v := given[name]; v != "" {
			env[name] = v
		}
	}
	switch {
	case kind == storageKubernetes && env["KUBERNETES_SERVICE_HOST"] != "":
		env["KUBE_IN_CLUSTER_CONFIG"] = "true"
	case kind == storageAzure && env["AZURE_FEDERATED_TOKEN_FILE"] != "":
		// The backend reads its own names; the webhook of AKS sets Azure's.
		env["ARM_USE_AKS_WORKLOAD_IDENTITY"] = "true"
		env["ARM_CLIENT_ID"] = cmp.Or(given["ARM_CLIENT_ID"], env["AZURE_CLIENT_ID"])
		env["ARM_TENANT_ID"] = cmp.Or(given["ARM_TENANT_ID"], env["AZURE_TENANT_ID"])
	}
	return env
}
