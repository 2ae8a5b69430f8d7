package check

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tributary/resource"
)

// The part of SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/) that says what was found, for the services that
// show findings beside the lines of a change.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver struct {
				Name    string      `json:"name"`
				Version string      `json:"version"`
				Rules   []sarifRule `json:"rules"`
			} `json:"driver"`
		} `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID  string `json:"ruleId"`
		Level   string `json:"level"`
		Message struct {
			Text string `json:"text"`
		} `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region *sarifRegion `json:"region,omitempty"`
		} `json:"physicalLocation"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)

// SARIF returns findings as a value that is written in JSON. version is that of this program.
func SARIF(findings []Finding, version string) any {
	run := sarifRun{Results: []sarifResult{}}
	driver := &run.Tool.Driver
	driver.Name, driver.Version, driver.Rules = "tributary", version, []sarifRule{}
	for _, f := range findings {
		text := f.Message
		if f.Kind != "" {
			text = strings.TrimSpace(resource.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}.String()) + ": " + text
		}
		result := sarifResult{RuleID: string(f.Rule), Level: string(f.Severity)}
		result.Message.Text = text
		if name, line, column := splitPlace(f.Place); name != "" {
			result.Locations = make([]sarifLocation, 1)
			physical := &result.Locations[0].Physical
			if physical.Artifact.URI = filepath.ToSlash(name); line > 0 {
				physical.Region = &sarifRegion{line, column}
			}
		}
		run.Results = append(run.Results, result)
		if rule := (sarifRule{string(f.Rule)}); !slices.Contains(driver.Rules, rule) {
			driver.Rules = append(driver.Rules, rule)
		}
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// splitPlace takes a place apart: file:line:column, of which the numbers are 0 if they are not there.
func splitPlace(place string) (name string, line, column int) {
	name = place
	var numbers []int
	for len(numbers) < 2 {
		i := strings.LastIndexByte(name, ':')
		if i < 0 {
			break
		}
		n, err := strconv.Atoi(name[i+1:])
		if err != nil || n < 1 {
			break
		}
		name, numbers = name[:i], append(numbers, n)
	}
	switch len(numbers) {
	case 2:
		return name, numbers[1], numbers[0]
	case 1:
		return name, numbers[0], 0
	}
	return name, 0, 0
}
