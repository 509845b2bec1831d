package state

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// The step gets all settings of the location of the runner's state storage. Each key that
// the step gets belongs to its own install.
func TestJobSpecHasStateLocation(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{`{type: local}`, `{"storage":"local","key":"ins_1/web"}`},
		{`{type: local, path: /srv/states}`, `{"storage":"local","key":"ins_1/web","in":{"folder":"/srv/states"}}`},
		{`{type: http}`, `{"storage":"http","key":"ins_1/web","path":"/runner/v1/state/ins_1/web"}`},
		{`{type: s3, bucket: acme-states, region: eu-central-1}`, `{"storage":"s3","key":"ins_1/web","in":{"bucket":"acme-states","region":"eu-central-1"}}`},
		{`{type: s3, bucket: acme-states, region: eu-central-1, path_prefix: of/acme, kms_key_id: alias/states, endpoint: "https://minio.example"}`,
			`{"storage":"s3","key":"ins_1/web","in":{"bucket":"acme-states","prefix":"of/acme","kms_key":"alias/states","region":"eu-central-1","endpoint":"https://minio.example"}}`},
		{`{type: gcs, bucket: acme-states, path_prefix: p, kms_key: projects/p/locations/l/keyRings/r/cryptoKeys/k}`,
			`{"storage":"gcs","key":"ins_1/web","in":{"bucket":"acme-states","prefix":"p","kms_key":"projects/p/locations/l/keyRings/r/cryptoKeys/k"}}`},
		{`{type: azurerm, storage_account_name: acmestates, container_name: states, resource_group_name: rg, subscription_id: 00000000-0000-0000-0000-000000000001, path_prefix: p}`,
			`{"storage":"azurerm","key":"ins_1/web","in":{"prefix":"p","account":"acmestates","container":"states","resource_group":"rg","subscription":"00000000-0000-0000-0000-000000000001"}}`},
		{`{type: kubernetes, namespace: fairlead}`, `{"storage":"kubernetes","key":"ins_1/web","in":{"namespace":"fairlead"}}`},
	} {
		t.Run(tt.config, func(t *testing.T) {
			runner := "local"
			if tt.config == `{type: kubernetes, namespace: fairlead}` {
				runner = "kubernetes, job: {namespace: fairlead, service_account: runner, image: 'r.example/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}"
			}
			spec := runnerspec.Parse("runner", fmt.Appendf(nil, "id: here\nrunner_configuration: {type: %s}\nstate_storage_configuration: %s\n", runner, tt.config))
			if spec.Spec == nil {
				t.Fatal(spec.Problems.Err())
			}
			config, err := json.Marshal(spec.Spec)
			if err != nil {
				t.Fatal(err)
			}
			storage, err := runners.StorageConfig(store.Runner{ID: "run_1", Name: "here", Config: config, Storage: string(spec.Spec.Storage.Kind()), Place: spec.Spec.Storage.Place("run_1")})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := json.Marshal(Ref(storage, "ins_1", "web")); err != nil || string(got) != tt.want {
				t.Errorf("the step gets the location %s\nwant %s", got, tt.want)
			}
		})
	}
}
