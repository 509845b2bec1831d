package terraform

import (
	"cmp"
	"encoding/json"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The kinds of state storage; see events.StateRef. Each is also the name of the tools' backend.
const (
	storageLocal      = "local"
	storageHTTP       = "http"
	storageS3         = "s3"
	storageGCS        = "gcs"
	storageAzure      = "azurerm"
	storageKubernetes = "kubernetes"
)

// localPath is the tool's path to a state in local storage. It uses a link in the workspace. So the path is the same for all
// components whose tool runs in the source folder itself.
const localPath = "../state/terraform.tfstate"

// The two objects that a backend stores: the state and the saved plan. The plan is beside the state, under its own key. Each
// component has one saved plan, because only its last plan can be applied.
const (
	forState = false
	forPlan  = true
)

// backend is the configuration of a tool's backend. It has no credentials: they reach the tool through its environment.
type backend struct {
	kind   string
	config map[string]any
	where  string // the location as the storage names it; "": the storage has no name that a person would know
	unlock string // the command that releases a lock; "": not needed
}

// file returns the content of the file that sets the backend.
func (b backend) file() ([]byte, error) {
	return json.Marshal(map[string]any{"terraform": map[string]any{"backend": map[string]any{b.kind: b.config}}})
}

// backendOf returns the backend for the state or the saved plan of a key. It is pure: the same reference gives the same
// file, with either tool, on any runner.
func backendOf(ref events.StateRef, plan bool) (backend, error) {
	if !isKey(ref.Key) {
		return backend{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec's state key %q is not <install>/<component>", ref.Key)
	}
	in := events.StateStore{}
	if ref.In != nil {
		in = *ref.In
	}
	object := ref.Object(plan)
	b := backend{kind: ref.Storage, config: map[string]any{}, where: ref.Where(plan), unlock: ref.Unlock()}
	need := map[string]string{}
	switch ref.Storage {
	case storageLocal:
		b.config["path"] = localPath
	case storageHTTP: // all settings are of this job only, and are in the environment
	case storageS3:
		need["bucket"], need["region"] = in.Bucket, in.Region
		b.config = map[string]any{
			"bucket": in.Bucket, "key": object, "region": in.Region,
			// The tool's first request fails for the same reasons as the first two checks, so these are not needed.
			// The third check would refuse regions that are newer than the tool.
			"skip_credentials_validation": true, "skip_requesting_account_id": true, "skip_region_validation": true,
		}
		if !plan {
			b.config["use_lockfile"] = true // locks by a conditional write beside the state, without another service
		}
		if in.KMSKey != "" {
			// Without KMSKey the bucket's default encryption applies. Setting encrypt without a key would override it.
			b.config["encrypt"], b.config["kms_key_id"] = true, in.KMSKey
		}
		if in.Endpoint != "" {
			b.config["endpoints"] = map[string]any{"s3": in.Endpoint}
			// Few S3 servers other than AWS have a host name for each bucket or accept the checksums of recent AWS SDKs.
			b.config["use_path_style"], b.config["skip_s3_checksum"] = true, true
		}
	case storageGCS:
		need["bucket"] = in.Bucket
		b.config["bucket"], b.config["prefix"] = in.Bucket, object // the prefix of default.tfstate and default.tflock
		if in.KMSKey != "" {
			b.config["kms_encryption_key"] = in.KMSKey
		}
	case storageAzure:
		need["storage account"], need["container"] = in.Account, in.Container
		b.config["storage_account_name"], b.config["container_name"], b.config["key"] = in.Account, in.Container, object
		if in.ResourceGroup != "" {
			b.config["resource_group_name"] = in.ResourceGroup
		}
		if in.Subscription != "" {
			b.config["subscription_id"] = in.Subscription
		}
		if in.ResourceGroup == "" {
			b.config["use_azuread_auth"] = true // otherwise the tool looks up the account's key, which needs the resource group
		}
	case storageKubernetes:
		need["namespace"] = in.Namespace
		b.config["namespace"], b.config["secret_suffix"] = in.Namespace, object
	default:
		return backend{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec has the state storage %q; this runner supports local, http, s3, gcs, azurerm and kubernetes", ref.Storage)
	}
	for name, value := range need {
		if value == "" {
			return backend{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec has the state storage %s but no %s", ref.Storage, name)
		}
	}
	return b, nil
}

// identityVariables are the variables by which a tool finds the identity of its machine: the task's role or the pod's
// service account. They name files and addresses, and hold no credential. A tool gets a credential such as an access key
// only if the operator passes it on or the step assumes a role.
func identityVariables(kind string) []string {
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

// identity returns the variables that make the backend use the machine's identity. given is the step's environment. chosen
// has the variables of the job: identity returns no variable that is set in chosen.
func identity(kind string, given, chosen map[string]string) map[string]string {
	env := map[string]string{}
	for _, name := range identityVariables(kind) {
		if v := given[name]; v != "" {
			env[name] = v
		}
	}
	set := func(name string) bool { return given[name] != "" || chosen[name] != "" }
	switch {
	case kind == storageKubernetes && env["KUBERNETES_SERVICE_HOST"] != "" && !set("KUBE_CONFIG_PATH") && !set("KUBE_HOST"):
		env["KUBE_IN_CLUSTER_CONFIG"] = "true"
	case kind == storageAzure && env["AZURE_FEDERATED_TOKEN_FILE"] != "":
		// AKS's webhook sets variables with Azure's names. The backend reads variables with its own names.
		env["ARM_USE_AKS_WORKLOAD_IDENTITY"] = "true"
		env["ARM_CLIENT_ID"] = cmp.Or(given["ARM_CLIENT_ID"], env["AZURE_CLIENT_ID"])
		env["ARM_TENANT_ID"] = cmp.Or(given["ARM_TENANT_ID"], env["AZURE_TENANT_ID"])
	}
	for name := range chosen {
		delete(env, name)
	}
	return env
}
