package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// Object names what in its storage holds the state, or the saved plan beside it:
// the key of an object (s3, azurerm), the prefix of several (gcs), or the end of
// a Secret's name (kubernetes). "" of the other kinds.
func (r StateRef) Object(plan bool) string {
	folder, prefix := "state", ""
	if plan {
		folder = "plans"
	}
	if r.In != nil {
		prefix = r.In.Prefix
	}
	switch object := path.Join(prefix, folder, r.Key); r.Storage {
	case "s3", "azurerm":
		return object + ".tfstate"
	case "gcs":
		return object
	case "kubernetes":
		return secretSuffix(r.Key, plan)
	}
	return ""
}

// maxSuffix is the longest end of a Secret's name: the tools make a label of
// it, which has 63 characters at most.
const maxSuffix = 63

// secretSuffix makes the end of a Secret's name from a key, for which it is
// unique. It does not end with a number, which Terraform refuses: it counts the
// parts of large states there.
func secretSuffix(key string, plan bool) string {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(key))
	sum := sha256.Sum256([]byte(key))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-state"
	if plan {
		tail = strings.TrimSuffix(tail, "state") + "plan"
	}
	return strings.TrimRight(name[:min(len(name), maxSuffix-len(tail))], "-") + tail
}

// Where names the state, or the saved plan, for a person: what to look for, in
// the words of its storage. "" of local and http.
func (r StateRef) Where(plan bool) string {
	if r.In == nil {
		return ""
	}
	switch object := r.Object(plan); r.Storage {
	case "s3":
		return fmt.Sprintf("s3://%s/%s", r.In.Bucket, object)
	case "gcs":
		return fmt.Sprintf("gs://%s/%s/default.tfstate", r.In.Bucket, object)
	case "azurerm":
		return fmt.Sprintf("the blob %s in container %s of account %s", object, r.In.Container, r.In.Account)
	case "kubernetes":
		return fmt.Sprintf("the Secret tfstate-default-%s in namespace %s", object, r.In.Namespace)
	}
	return ""
}

// Unlock is the command with which a person takes off a lock that a dead tool
// has left on the state; "" of local and http, where there is no need of one.
func (r StateRef) Unlock() string {
	if r.In == nil {
		return ""
	}
	switch object := r.Object(false); r.Storage {
	case "s3":
		command := fmt.Sprintf("aws s3 rm s3://%s/%s.tflock", r.In.Bucket, object)
		if r.In.Endpoint != "" {
			command += " --endpoint-url " + r.In.Endpoint
		}
		return command
	case "gcs":
		return fmt.Sprintf("gcloud storage rm gs://%s/%s/default.tflock", r.In.Bucket, object)
	case "azurerm":
		return fmt.Sprintf("az storage blob lease break --account-name %s --container-name %s --blob-name %s --auth-mode login", r.In.Account, r.In.Container, object)
	case "kubernetes":
		return fmt.Sprintf("kubectl delete lease lock-tfstate-default-%s --namespace %s", object, r.In.Namespace)
	}
	return ""
}
