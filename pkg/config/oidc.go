package config

// OIDC is where a runner gets the token by which it proves who it is; it is
// read only when FAIRLEAD_IDENTITY is oidc. What is not called FAIRLEAD_ is set
// by the platform, under the name that the platform has for it.
type OIDC struct {
	Source   string `env:"FAIRLEAD_OIDC_SOURCE" envDefault:"file" doc:"where the token comes from: file, github, gcp or azure"`
	File     string `env:"FAIRLEAD_OIDC_TOKEN_FILE" doc:"file that holds the token, read for each session, of source file: a Kubernetes projected service account token"`
	Audience string `env:"FAIRLEAD_OIDC_AUDIENCE" doc:"audience of the runner's trust, of the sources that are asked for one: github, gcp and azure"`

	RequestURL   string `env:"ACTIONS_ID_TOKEN_REQUEST_URL" doc:"where a job of GitHub Actions, or of a CI that does as it does, asks for its token; set by the CI"`
	RequestToken string `env:"ACTIONS_ID_TOKEN_REQUEST_TOKEN" doc:"what the job asks with; set by the CI"`

	GCPHost string `env:"GCE_METADATA_HOST" envDefault:"metadata.google.internal" doc:"host of Google Cloud's metadata server"`

	AzureHost     string `env:"AZURE_POD_IDENTITY_AUTHORITY_HOST" envDefault:"http://169.254.169.254" doc:"URL of Azure's instance metadata service"`
	AzureClientID string `env:"AZURE_CLIENT_ID" doc:"client id of a user-assigned managed identity; default: the system-assigned one"`
}
