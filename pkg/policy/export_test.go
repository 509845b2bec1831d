package policy

// MatchesPath is matchesPath.
var MatchesPath = matchesPath
