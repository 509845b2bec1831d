# The benchmark kills a step during this apply. Ten minutes are longer than the control
# plane needs to detect that.

resource "terraform_data" "sleep" {
  provisioner "local-exec" {
    command = "exec sleep 600"
  }
}
