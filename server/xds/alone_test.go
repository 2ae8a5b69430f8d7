package xds

import "testing"

// A secret that the client rejects does not affect others: each has a delta response of its own, however the response is made.
func TestSecrets_OnePerResponse(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(SecretURL, "a", "b", "c")
	client := fixture.delta()
	client.Ask(SecretURL, "a", "b", "c", "d")
	client.ExpectAck(SecretURL, nil, "a@1")
	client.Nack(client.Expect(SecretURL, "b@1"), "there is no such file")
	client.ExpectAck(SecretURL, nil, "c@1")
	client.ExpectAck(SecretURL, nil, "-d")
	fixture.set(SecretURL, "a@2", "c@2", "-b")
	client.ExpectAck(SecretURL, nil, "a@2")
	client.ExpectAck(SecretURL, nil, "c@2")
	client.ExpectAck(SecretURL, nil, "-b")

	wildcardClient := fixture.delta()
	wildcardClient.Ask(SecretURL)
	wildcardClient.ExpectAck(SecretURL, nil, "a@2")
	wildcardClient.ExpectAck(SecretURL, nil, "c@2")
	fixture.set(SecretURL, "a@3", "c@3")
	wildcardClient.ExpectAck(SecretURL, nil, "a@3")
	wildcardClient.ExpectAck(SecretURL, nil, "c@3")
	wildcardClient.Silence()
}
