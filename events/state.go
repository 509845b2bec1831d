package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// Object returns the name of the state, or of the saved plan, in its storage: the key of an object (s3, azurerm), the
// prefix of several objects (gcs), or the suffix of a Secret's name (kubernetes). For other storages it returns "".
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

// maxSuffix is the longest suffix of a Secret's name. The tools use it as a label, which may have 63 characters.
const maxSuffix = 63

// secretSuffix returns a suffix of a Secret's name that is unique for the key. It does not end with a number.
// Terraform refuses such a suffix, because it numbers the parts of a large state there.
func secretSuffix(key string, plan bool) string {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(key))
	sum := sha256.Sum256([]byte(key))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-state"
	if plan {
		tail = strings.TrimSuffix(tail, "state") + "plan"
	}
	return strings.TrimRight(name[:min(len(name), maxSuffix-len(tail))], "-") + tail
}

// Where returns the location of the state, or of the saved plan, for a person, in the terms of its storage. For local
// and http it returns "".
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

// Unlock returns the command with which a person removes a state lock that a dead tool left. For local and http it
// returns "", because they need no command.
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
