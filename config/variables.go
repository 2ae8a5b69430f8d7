package config

import (
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// variable is $$, which stands for a dollar sign, ${NAME}, or what begins like that and is neither.
var variable = regexp.MustCompile(`\$\$|\$\{[^}]*\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand puts the values of environment variables in the place of ${NAME} in a value of the file, once; $$ is a dollar sign. What a
// variable has is never read as YAML.
func (d *decoder) expand(n *yaml.Node, key string) {
	if n.Kind != yaml.ScalarNode || d.expanded[n] || !strings.Contains(n.Value, "$") {
		return
	}
	d.expanded[n] = true
	n.Value = variable.ReplaceAllStringFunc(n.Value, func(found string) string {
		if found == "$$" {
			return "$"
		}
		name, closed := strings.CutSuffix(strings.TrimPrefix(found, "${"), "}")
		value, set := os.LookupEnv(name)
		switch {
		case !closed || !variableName.MatchString(name):
			d.problemAt(d.placeOf(n), key, "want ${NAME} with letters, digits and _, or $$ for a dollar sign, got %s", found)
		case !set:
			d.problemAt(d.placeOf(n), key, "the environment variable %s is not set", name)
		}
		d.veil.Cover(value)
		return value
	})
	d.veil.Cover(n.Value)
}
