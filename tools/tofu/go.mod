// Module tofu finds, downloads or builds the Terraform-compatible tool that the
// demo, the tests and the benchmarks run.
module github.com/fairlead/fairlead/tools/tofu

go 1.26.0

require (
	github.com/ProtonMail/gopenpgp/v2 v2.7.5
	github.com/opentofu/tofudl v0.0.1
	golang.org/x/mod v0.41.0
)

require (
	github.com/ProtonMail/go-crypto v1.5.2 // indirect
	github.com/ProtonMail/go-mime v0.0.0-20230322103455-7d82a3887f2f // indirect
	github.com/cloudflare/circl v1.6.3 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/crypto v0.41.0 // indirect
	golang.org/x/sys v0.35.0 // indirect
	golang.org/x/text v0.28.0 // indirect
)
