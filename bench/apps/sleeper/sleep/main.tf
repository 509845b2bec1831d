# The benchmark kills a step during this apply. The control plane needs less than ten
# minutes to detect that the step is dead.

resource "terraform_data" "sleep" {
  provisioner "local-exec" {
    command = "exec sleep 600"
  }
}
