package state

import (
	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// StatePath returns the path under which the runner API serves the Terraform state of a
// component.
func StatePath(install, component string) string {
	return "/runner/v1/state/" + install + "/" + component
}

// Ref returns the location of a component's state for a step. Its key contains the
// install's identifier, not its name: a later install with the same name never gets the
// state of an earlier one.
func Ref(s runnerspec.Storage, install fairlead.InstallID, component string) *events.StateRef {
	ref := &events.StateRef{Storage: string(s.Kind()), Key: string(install) + "/" + component}
	switch s := s.(type) {
	case *runnerspec.S3Storage:
		ref.In = &events.StateStore{Bucket: s.Bucket, Region: s.Region, Prefix: s.PathPrefix, KMSKey: s.KMSKeyID, Endpoint: s.Endpoint}
	case *runnerspec.GCSStorage:
		ref.In = &events.StateStore{Bucket: s.Bucket, Prefix: s.PathPrefix, KMSKey: s.KMSKey}
	case *runnerspec.AzureStorage:
		ref.In = &events.StateStore{Account: s.StorageAccountName, Container: s.ContainerName, ResourceGroup: s.ResourceGroupName, Subscription: s.SubscriptionID, Prefix: s.PathPrefix}
	case *runnerspec.KubernetesStorage:
		ref.In = &events.StateStore{Namespace: s.Namespace}
	case *runnerspec.LocalStorage:
		if s.Path != "" {
			ref.In = &events.StateStore{Folder: s.Path}
		}
	case *runnerspec.HTTPStorage:
		ref.Path = StatePath(string(install), component)
	}
	return ref
}
