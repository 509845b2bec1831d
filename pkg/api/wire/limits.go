package wire

// GetLimits is the route of the control API about the limits of an org.
var GetLimits = Route{"get-limits", "GET", "/v1/limits"}

// What a limit is for.
const (
	LimitOfOrg   = "org"
	LimitOfToken = "token"
)

// Limits are the limits that hold for a caller.
type Limits struct {
	Limits []Limit `json:"limits" nullable:"false"`
}

// Limit is a limit with what is used of it.
type Limit struct {
	Name  string `json:"name" doc:"As in the details of a refusal and in the option of the server that sets it"`
	Of    string `json:"of" enum:"org,token" doc:"All callers of the org share the limit, or it is for the token of this request"`
	Used  *int   `json:"used,omitempty" doc:"Of a rate on AWS: the mean of the present ten seconds, as far as the process knows. Absent for a rate on one machine: what is used of its burst is another limit"`
	Limit int    `json:"limit"`
}
